package io.fsdp2.internal;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Locale;

/**
 * Finds and loads the two libraries: libfsdp2, and libfsdp2_jni, which leads from Java to it.
 *
 * <p>libfsdp2: the file that FSDP2_LIBRARY names; else libfsdp2.so in java.library.path; else where
 * the system's linker finds it. libfsdp2_jni: the file that FSDP2_JNI names; else in
 * java.library.path; else the one in the jar, unpacked into a cache.
 */
final class NativeLibrary {
  private static final String JNI = System.mapLibraryName("fsdp2_jni");

  private NativeLibrary() {}

  static void load() {
    Path library = named("FSDP2_LIBRARY", System.mapLibraryName("fsdp2"));
    if (library != null) {
      load(library, false);
    }
    Path jni = named("FSDP2_JNI", JNI);
    load(jni == null ? unpack() : jni, true);
  }

  private static void load(Path file, boolean isJni) {
    try {
      System.load(file.toString());
    } catch (UnsatisfiedLinkError failure) {
      String remedy =
          isJni && !failure.getMessage().contains("libfsdp2.so") // which libfsdp2_jni.so needs
              ? " (FSDP2_JNI=FILE or -Djava.library.path=DIRECTORY says where it is)"
              : " (FSDP2_LIBRARY=FILE or -Djava.library.path=DIRECTORY says where libfsdp2.so is)";
      UnsatisfiedLinkError told = new UnsatisfiedLinkError(failure.getMessage() + remedy);
      told.initCause(failure);
      throw told;
    }
  }

  private static Path named(String variable, String file) {
    String chosen = System.getenv(variable);
    if (chosen != null && !chosen.isEmpty()) {
      return Path.of(chosen).toAbsolutePath();
    }
    String directories = System.getProperty("java.library.path", "");
    for (String directory : directories.split(File.pathSeparator)) {
      Path candidate = Path.of(directory, file).toAbsolutePath();
      if (!directory.isEmpty() && Files.isRegularFile(candidate)) {
        return candidate;
      }
    }
    return null;
  }

  /** As in linux-x86_64. */
  private static String platform() {
    String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String machine = System.getProperty("os.arch");
    return system + "-" + (machine.equals("amd64") ? "x86_64" : machine);
  }

  private static Path unpack() {
    String resource = "native/" + platform() + "/" + JNI;
    try (InputStream packed = NativeLibrary.class.getResourceAsStream(resource)) {
      if (packed == null) {
        throw new UnsatisfiedLinkError(
            "no "
                + JNI
                + " for "
                + platform()
                + " in this jar: FSDP2_JNI=FILE or -Djava.library.path=DIRECTORY says where it is");
      }
      return cached(packed.readAllBytes());
    } catch (IOException failure) {
      UnsatisfiedLinkError wrapped =
          new UnsatisfiedLinkError("cannot unpack " + JNI + ": " + failure);
      wrapped.initCause(failure);
      throw wrapped;
    }
  }

  /** In a folder named for its contents; put there whole, so that processes do not meet halves. */
  private static Path cached(byte[] contents) throws IOException {
    Path directory = cache().resolve("jni").resolve(sha256(contents));
    Path file = directory.resolve(JNI);
    if (Files.isRegularFile(file) && Arrays.equals(Files.readAllBytes(file), contents)) {
      return file;
    }
    Files.createDirectories(directory);
    Path whole = Files.createTempFile(directory, JNI, ".new");
    try {
      Files.write(whole, contents);
      Files.move(whole, file, StandardCopyOption.ATOMIC_MOVE);
    } finally {
      Files.deleteIfExists(whole);
    }
    return file;
  }

  private static Path cache() {
    String own = System.getenv("FSDP2_CACHE");
    if (own != null && !own.isEmpty()) {
      return Path.of(own).toAbsolutePath();
    }
    String shared = System.getenv("XDG_CACHE_HOME");
    Path caches =
        shared != null && !shared.isEmpty()
            ? Path.of(shared)
            : Path.of(System.getProperty("user.home"), ".cache");
    return caches.resolve("libfsdp2").toAbsolutePath();
  }

  private static String sha256(byte[] contents) {
    try {
      return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(contents));
    } catch (NoSuchAlgorithmException impossible) {
      throw new AssertionError(impossible);
    }
  }
}
