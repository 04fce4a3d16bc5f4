package io.fsdp2;

import io.fsdp2.internal.fsdp2_optimizer_group_info;

/**
 * A group of parameters; what the algorithm does not have is 0.
 *
 * @param parameters in the group
 * @param lr the learning rate now
 * @param beta1 of AdamW
 * @param beta2 of AdamW
 * @param eps of AdamW
 * @param weightDecay the decay of weights
 * @param momentum of SGD and of matrices of Muon
 * @param nesterov of SGD and of matrices of Muon
 * @param newtonSchulzSteps of matrices of Muon
 * @param matchedAdamwRms of matrices of Muon
 */
public record OptimizerGroupInfo(
    int parameters,
    double lr,
    double beta1,
    double beta2,
    double eps,
    double weightDecay,
    double momentum,
    boolean nesterov,
    long newtonSchulzSteps,
    double matchedAdamwRms) {
  static OptimizerGroupInfo of(fsdp2_optimizer_group_info raw) {
    return new OptimizerGroupInfo(
        raw.getN_parameters(),
        raw.getLr(),
        raw.getBeta1(),
        raw.getBeta2(),
        raw.getEps(),
        raw.getWeight_decay(),
        raw.getMomentum(),
        raw.getNesterov() != 0,
        raw.getNewton_schulz_steps(),
        raw.getMatched_adamw_rms());
  }
}
