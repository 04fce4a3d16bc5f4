// How files of checkpoints are named.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// __R.metadata: of one rank of torch.distributed.checkpoint without collectives.
bool is_dcp_part_metadata(const std::string& name);
// fsdp_sharded_cpt{step}_rank{r}.pth
bool is_per_rank_pth(const std::string& name);

}  // namespace fsdp2::ckpt
