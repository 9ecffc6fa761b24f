"""Why CroSel, as its paper describes it, scores below the published experiments on lost: one change at a time.

    python -m benchmarks.crosel_gap --data DIR
    candidly table runs/crosel_gap

Each variant differs from `candidly.methods.Crosel` in one way that the published experiments' code has, or in how the
selected rows pass through batch normalisation. Twenty models each (seeds 0-4, four initialisations).
"""

import argparse
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.bench import Spec, sweep
from candidly.candidates.weights import masked_softmax
from candidly.engine.nets.losses import candidate_nll, soft_ce
from candidly.methods import Batch, Crosel, Method


@dataclass
class Variant(Crosel):
    """CroSel with some parts replaced.

    `double` applies softmax twice inside the cross-entropies; `own` lets each network follow its own bank and
    selection; `joint` passes selected and other rows through the networks together; `inside` takes the selected rows of
    the batch itself instead of a second batch; `plain` multiplies the bank by S without normalising it.
    """

    double: bool = False
    own: bool = False
    joint: bool = False
    inside: bool = False
    plain: bool = False

    def step(self, batch: Batch, phase: Hashable) -> Tensor:
        """Compute the loss of one minibatch, with the replaced parts."""
        B = batch.rows.shape[1]
        position = self.cursor + torch.arange(B, device=self.cursor.device)
        picked = []
        for k in (0, 1):
            other = k if self.own else 1 - k
            count = self.count[:, 1 - other, None]  # pool and count are those that network 1 - other trains on
            rows = self.pool[:, :, 1 - other].gather(1, position % count.clamp_min(1))
            label = self.labels[:, :, other, -1].gather(1, rows).clamp_min(0)
            picked.append((rows, label, count > 0))
        inputs = torch.stack([batch.inputs(rows) for rows, _, _ in picked], 1)
        if self.joint and phase == "main":
            both = self._logits(torch.cat([batch.x.unsqueeze(1).expand_as(inputs), inputs], 2)).movedim(1, 0)
            z, chosen = both[:, :, :B], both[:, :, B:]
        else:
            z = self._logits(batch.x).movedim(1, 0)
        p = z.softmax(-1)
        kept = batch.candidates(p.detach().mean(0))
        if phase == "warm-up":
            return candidate_nll(z, kept).sum(0)
        if not self.joint:
            chosen = self._logits(inputs).movedim(1, 0)
        self.cursor += B
        bank = batch.take(self.bank).movedim(2, 0)
        bank = bank if self.own else bank.flip(0)
        target = bank.exp() * kept if self.plain else masked_softmax(bank, kept)
        soft = soft_ce(target, p if self.double else z).sum(0)
        total = self.lambda_cr * (1 - self.fraction) * soft
        if self.inside:
            steady = (self.labels == self.labels[..., -1:]).all(-1) & (self.maxima.mean(-1) > self.confidence)
            chosen_rows = steady & self.problem.sets.gather(2, self.labels[..., -1].clamp_min(0))
            mask = batch.take(chosen_rows).movedim(2, 0).flip(0)
            label = batch.take(self.labels[..., -1].contiguous()).movedim(2, 0).flip(0).clamp_min(0)
            log_p = z.log_softmax(-1).gather(-1, label.unsqueeze(-1)).squeeze(-1)
            return total - ((log_p * mask).sum(-1) / mask.sum(-1).clamp_min(1)).sum(0)
        for out, (_, label, some) in zip(chosen, picked, strict=True):
            out = out.softmax(-1) if self.double else out
            log_p = out.log_softmax(-1).gather(-1, label.unsqueeze(-1)).squeeze(-1)
            total = total - torch.where(some, log_p, 0.0).mean(-1)
        return total


VARIANTS: dict[str, Method] = {
    "as-the-paper": Variant(),
    "joint-batch-normalisation": Variant(joint=True),
    "selected-rows-inside-the-batch": Variant(inside=True),
    "softmax-twice": Variant(double=True),
    "each-network-follows-itself": Variant(own=True),
    "unnormalised-soft-targets": Variant(plain=True),
    "all-three": Variant(double=True, own=True, plain=True),
}


def main() -> None:
    """Run all variants on one dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the .mat files")
    parser.add_argument("--dataset", default="lost")
    parser.add_argument("--clean", action="store_true", help="with the published conformal cleaning (Conf+CroSel)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="separated by commas (default: all)")
    parser.add_argument("--inits", type=int, default=4, help="initialisations of each of the five seeds")
    parser.add_argument("--out", default="runs/crosel_gap", help="folder for the runs")
    args = parser.parse_args()
    methods = [f"{'conf+' * args.clean}{name}" for name in args.variants.split(",")]
    spec = Spec((args.dataset,), tuple(methods), inits=args.inits, protocol="uai2025", own=VARIANTS)
    print(sweep(spec, args.out, root=args.data, progress=True))


if __name__ == "__main__":
    main()
