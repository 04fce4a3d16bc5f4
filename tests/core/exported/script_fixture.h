// TorchScript files put together by hand, right or wrong: a module of class M with one parameter w,
// [2, 3].
#pragma once

#include <ATen/Functions.h>

#include <string>
#include <vector>

#include "core/ckpt/pickle/writer.h"
#include "tests/core/ckpt/torch/zip_fixture.h"

namespace fsdp2::exported {

// A file in parts; bytes() puts them together.
struct ScriptFile {
  std::string forward = "    return torch.sum(torch.mul(x, self.w))\n";
  std::string arguments = "x: Tensor";
  std::string result = "Tensor";
  std::string parameters = "\"w\", ";
  std::string buffers = {};
  std::string more_attributes = {};
  std::string more_methods = {};
  std::string more_classes = {};
  std::string version = "3\n";
  std::string constants = ckpt::write_pickle(ckpt::PythonTuple());
  std::string storage = ckpt::number_bytes(0, 4) + std::string(20, '\1');
  std::string storage_class = "torch.FloatStorage";
  std::string attribute = "w";
  std::string class_name = "__torch__.M";
  int64_t storage_numel = 6;
  int64_t rows = 2;
  std::vector<ckpt::ZipEntry> more = {};

  std::string code() const {
    return more_classes + "class M(Module):\n  __parameters__ = [" + parameters +
           "]\n  __buffers__ = [" + buffers + "]\n  training : bool\n  w : Tensor\n" +
           more_attributes + "  def forward(self: __torch__.M,\n    " + arguments + ") -> " +
           result + ":\n" + forward + more_methods;
  }

  // The object of class M.
  std::string data() const {
    ckpt::PickleEmitter out;
    out.global(class_name);
    out.empty_tuple();
    out.make_object();
    out.empty_dict();
    out.mark();
    out.text("training");
    out.boolean(true);
    out.text(attribute);
    put_tensor(out);
    out.set_all();
    out.build();
    return out.finish();
  }

  std::vector<ckpt::ZipEntry> entries() const {
    std::vector<ckpt::ZipEntry> all = {{"m/code/__torch__.py", code()},
                                       {"m/data.pkl", data()},
                                       {"m/constants.pkl", constants},
                                       {"m/data/0", storage},
                                       {"m/version", version}};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string bytes() const { return ckpt::zip_text(entries()); }

 private:
  void put_tensor(ckpt::PickleEmitter& out) const {
    out.global("torch._utils._rebuild_tensor_v2");
    out.mark();
    out.mark();
    out.text("storage");
    out.global(storage_class);
    out.text("0");
    out.text("cpu");
    out.integer(storage_numel);
    out.tuple();
    out.persistent_id();
    out.integer(0);
    for (const auto& [first, second] :
         {std::pair(rows, int64_t{3}), std::pair(int64_t{3}, int64_t{1})}) {
      out.integer(first);
      out.integer(second);
      out.tuple_of(2);
    }
    out.boolean(true);
    out.global("collections.OrderedDict");
    out.empty_tuple();
    out.call();
    out.tuple();
    out.call();
  }
};

}  // namespace fsdp2::exported
