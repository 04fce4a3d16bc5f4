package io.fsdp2.internal;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
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
  private static final String OTHER = " is another library than libfsdp2";
  private static final String REMEDY =
      " (FSDP2_LIBRARY=FILE or -Djava.library.path=DIRECTORY says where libfsdp2.so is)";

  private NativeLibrary() {}

  static void load() {
    Path library = named("FSDP2_LIBRARY", System.mapLibraryName("fsdp2"));
    if (library != null) {
      try {
        System.load(library.toString());
      } catch (UnsatisfiedLinkError failure) {
        throw told(failure.getMessage() + REMEDY, failure);
      }
    }
    loadJni(library);
    if (library != null) {
      expectInUse(library);
    }
  }

  /** It finds libfsdp2.so by its name: the one that is loaded already, or the linker's. */
  private static void loadJni(Path library) {
    Path chosen = named("FSDP2_JNI", JNI);
    Path jni = chosen == null ? unpack() : chosen;
    try {
      System.load(jni.toString());
    } catch (UnsatisfiedLinkError failure) {
      String message = failure.getMessage();
      if (!message.contains("libfsdp2.so")) {
        throw told(
            message + " (FSDP2_JNI=FILE or -Djava.library.path=DIRECTORY says where it is)",
            failure);
      }
      boolean isOther = library != null && message.contains("cannot open shared object file");
      throw told((isOther ? library + OTHER + ": " : "") + message + REMEDY, failure);
    }
  }

  /** Asks RawJNI, which is being initialized here, and not Raw, which waits for that. */
  private static void expectInUse(Path library) {
    try {
      String file = Text.fromC(RawJNI.library_file());
      if (file.isEmpty()) {
        return; // the system does not tell
      }
      Path used = Path.of(file);
      if (!Files.isSameFile(library, used)) {
        throw told(library + OTHER + ", which is " + used + " in this process" + REMEDY, null);
      }
    } catch (IOException | InvalidPathException unknown) {
      // Taken away since it was loaded, or a name that Java does not spell: nothing to compare.
    }
  }

  private static UnsatisfiedLinkError told(String message, Throwable cause) {
    UnsatisfiedLinkError told = new UnsatisfiedLinkError(message);
    told.initCause(cause);
    return told;
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
