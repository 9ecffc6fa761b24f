"""What explains CroSel's published numbers: the bank, and other differences of the published code, one at a time.

    python -m benchmarks.crosel_gap --data DIR
    python -m benchmarks.crosel_gap --data DIR --dataset fmnist --inits 1
    candidly table runs/crosel_gap

Each variant differs from `candidly.methods.Crosel` in one way that the published experiments' code has. Twenty models
each (seeds 0-4, four initialisations).
"""

import argparse
from dataclasses import dataclass

import torch
from torch import Tensor

from candidly.bench import Spec, sweep
from candidly.candidates.weights import masked_softmax
from candidly.engine import Batch, BuildNet, Problem, Sweep
from candidly.engine.nets.losses import soft_ce
from candidly.methods import Crosel, Method
from candidly.methods.crosel import NETWORKS, other_network


@dataclass
class Variant(Crosel):
    """CroSel with parts of the published code.

    `twice` applies softmax twice inside the cross-entropy of selected rows; `everywhere` does so in the soft term, too,
    which the published code does not. `own` lets each network follow its own bank, selection and selected fraction.
    `plain` multiplies the bank by the candidates without normalising it. `equal` starts both networks with the same
    weights. `few` leaves the selected rows out while a network selects less than 5 % of them.
    """

    twice: bool = False
    everywhere: bool = False
    own: bool = False
    plain: bool = False
    equal: bool = False
    few: bool = False

    def setup(self, problem: Problem, build_net: BuildNet) -> None:
        """Make the second network a copy of the first, if they start equal."""
        super().setup(problem, build_net)
        if self.equal:
            with torch.no_grad():
                for parameter in self.nets.parameters():
                    pairs = parameter.unflatten(0, (-1, NETWORKS))
                    pairs[:, 1] = pairs[:, 0]
        self.fraction = problem.new_zeros(problem.runs, 1 if not self.own else NETWORKS)

    def step(self, batch: Batch, phase: object) -> Tensor:
        """Weigh both terms of each network by itself."""
        if phase == "warm-up":
            return super().step(batch, phase)
        soft, selected = self._soft_of_each(batch), self._selected_of_each(batch)
        if self.few:
            enough = self.count / self.problem.training_mask.sum(1, keepdim=True) > 0.05
            selected = torch.where(enough if self.own else other_network(enough, 1), selected, 0.0)
        return (selected + self.lambda_cr * (1 - self.fraction) * soft).sum(1)

    def _followed(self, values: Tensor, dim: int) -> Tensor:
        """Return, for each network, the values of the network that it follows."""
        return values if self.own else other_network(values, dim)

    def _soft_of_each(self, batch: Batch) -> Tensor:
        z, kept = self._logits_and_candidates(batch)
        last = self._followed(batch.take(self.stored).movedim(2, 1), 1)
        self._store(batch, z)
        target = last.exp() * kept if self.plain else masked_softmax(last, kept)
        return soft_ce(target, z.softmax(-1) if self.everywhere else z)

    def _selected_of_each(self, batch: Batch) -> Tensor:
        B = batch.rows.shape[1]
        # The pool and count of a network hold what the other one selected.
        pool, count = (other_network(t, d) if self.own else t for t, d in ((self.pool, 2), (self.count, 1)))
        some = count.unsqueeze(-1)
        position = self.cursor + torch.arange(B, device=self.cursor.device)
        self.cursor += B
        rows = torch.where(some > 0, pool.mT.gather(2, position % some.clamp_min(1)), batch.rows.unsqueeze(1))
        label = self._followed(self.labels[..., -1], 2).mT.gather(2, rows).clamp_min(0)
        z = self._logits(batch.inputs(rows.flatten(1)).unflatten(1, (NETWORKS, B)))
        log_p = (z.softmax(-1) if self.twice or self.everywhere else z).log_softmax(-1)
        at_label = log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
        return -torch.where(some > 0, at_label, 0.0).mean(-1)

    def epoch_end(self, epoch: int, sweep: Sweep) -> None:
        """Select, with a fraction for each network if each follows itself."""
        kept = self.fraction
        self.fraction = kept.new_zeros(len(kept))
        super().epoch_end(epoch, sweep)
        mean, self.fraction = self.fraction, kept
        share = other_network(self.count, 1) / self.problem.training_mask.sum(1, keepdim=True)
        self.fraction.copy_(share if self.own else mean.unsqueeze(1))


VARIANTS: dict[str, Method] = {
    "training-pass": Variant(),
    "sweep": Variant(bank="sweep"),
    "softmax-twice": Variant(twice=True),
    "softmax-twice-everywhere": Variant(everywhere=True),
    "each-network-follows-itself": Variant(own=True),
    "unnormalised-soft-targets": Variant(plain=True),
    "published-code": Variant(twice=True, own=True, plain=True, equal=True, few=True),
}


def main() -> None:
    """Run all variants on one dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the files of the datasets")
    parser.add_argument("--dataset", default="lost")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="separated by commas (default: all)")
    parser.add_argument("--inits", type=int, default=4, help="initialisations of each of the five seeds")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", default="runs/crosel_gap", help="folder for the runs")
    args = parser.parse_args()
    methods = tuple(args.variants.split(","))
    spec = Spec((args.dataset,), methods, inits=args.inits, protocol="uai2025", own=VARIANTS)
    print(sweep(spec, args.out, root=args.data, progress=True, jobs=args.jobs))


if __name__ == "__main__":
    main()
