package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_loader_info;
import io.fsdp2.internal.fsdp2_loader_options;
import java.util.Optional;

/**
 * Batches of token windows for this rank, from a flat file of tokens, from any text, or from
 * records in JSON lines; of one file or several.
 */
public final class Loader extends Handle {
  private Loader(long id) {
    super(id, Raw::fsdp2_loader_destroy);
  }

  static Loader adopt(long id) {
    return new Loader(id);
  }

  /** Opens a file of tokens. Collective. */
  public static Loader open(Mesh mesh, String path, LoaderOptions options) {
    try (fsdp2_loader_options raw = options.toRaw()) {
      return mesh.get(id -> new Loader(make(out -> Raw.fsdp2_loader_open(id, path, raw, out))));
    }
  }

  /**
   * Opens several files of one format as one. Each has epochs of its own. Collective.
   *
   * @param weights one for each path, of which only the proportions count
   */
  public static Loader openMixture(
      Mesh mesh, String[] paths, double[] weights, LoaderOptions options) {
    if (paths.length != weights.length) {
      throw new IllegalArgumentException(
          "weights: expected " + paths.length + ", one for each path, found " + weights.length);
    }
    try (fsdp2_loader_options raw = options.toRaw()) {
      return mesh.get(
          id ->
              new Loader(
                  make(
                      out ->
                          Raw.fsdp2_loader_open_mixture(
                              id, paths, weights, paths.length, raw, out))));
    }
  }

  /** How much there is to read. */
  public LoaderInfo getInfo() {
    try (fsdp2_loader_info raw = new fsdp2_loader_info()) {
      use(id -> Raw.fsdp2_loader_get_info(id, raw));
      return LoaderInfo.of(raw);
    }
  }

  /** The next micro batch of this rank. */
  public Batch next() {
    long[] tokens = new long[1];
    long[] labels = new long[1];
    use(id -> Raw.fsdp2_loader_next(id, tokens, labels));
    return new Batch(Tensor.adopt(tokens[0]), Tensor.adopt(labels[0]));
  }

  /**
   * The positions of the tokens that the last {@link #next} returned, for the module's forward
   * after the labels: they begin anew in each record. Records need them.
   */
  public Tensor getPositions() {
    return get(id -> Tensor.adopt(make(out -> Raw.fsdp2_loader_get_positions(id, out))));
  }

  /**
   * Where the sequences of the last batch begin, for the module's forward as its mask. A model that
   * sees images needs them in place of the positions.
   */
  public Tensor getBoundaries() {
    return get(id -> Tensor.adopt(make(out -> Raw.fsdp2_loader_get_boundaries(id, out))));
  }

  /** The images of the last batch, for the module's forward after the mask, if it has any. */
  public Optional<Images> getImages() {
    long[] pixels = new long[1];
    long[] grids = new long[1];
    use(id -> Raw.fsdp2_loader_get_images(id, pixels, grids));
    return pixels[0] == 0
        ? Optional.empty()
        : Optional.of(new Images(Tensor.adopt(pixels[0]), Tensor.adopt(grids[0])));
  }

  /** The videos of the last batch, for the module's forward after the images, if it has any. */
  public Optional<Videos> getVideos() {
    long[] pixels = new long[1];
    long[] grids = new long[1];
    long[] seconds = new long[1];
    use(id -> Raw.fsdp2_loader_get_videos(id, pixels, grids, seconds));
    if (pixels[0] == 0) {
      return Optional.empty();
    }
    Optional<Tensor> times =
        seconds[0] == 0 ? Optional.empty() : Optional.of(Tensor.adopt(seconds[0]));
    return Optional.of(new Videos(Tensor.adopt(pixels[0]), Tensor.adopt(grids[0]), times));
  }

  /** The number of steps taken so far. */
  public long getPosition() {
    return number(Raw::fsdp2_loader_get_position);
  }

  /** Says where to continue. */
  public void setPosition(long step) {
    use(id -> Raw.fsdp2_loader_set_position(id, step));
  }

  /** Another object for the same loader, for a second owner. */
  public Loader duplicate() {
    return get(id -> new Loader(make(out -> Raw.fsdp2_loader_duplicate(id, out))));
  }
}
