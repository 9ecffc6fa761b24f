"""The textbook loop that `benchmarks.speed` compares with; a change needs a reason in docs/evidence/speed.md.

A DataLoader over a TensorDataset with 16 shuffled rows per batch and no workers, nn.Sequential, torch.optim.Adam,
OneCycleLR, one model at a time.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Textbook:
    """PRODEN in plain PyTorch, one model."""

    def __init__(self, X: torch.Tensor, S: torch.Tensor, epochs: int):
        layers: list[nn.Module] = []
        for a, b in ((X.shape[1], 300), (300, 300), (300, 300)):
            layers += [nn.Linear(a, b), nn.ReLU(), nn.BatchNorm1d(b)]
        self.net = nn.Sequential(*layers, nn.Linear(300, S.shape[1]))
        self.S, self.q = S, S / S.sum(1, keepdim=True)
        self.loader = DataLoader(TensorDataset(X, torch.arange(len(X))), 16, shuffle=True)
        self.optimiser = torch.optim.Adam(self.net.parameters(), weight_decay=1e-4)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, max_lr=0.01, epochs=epochs, steps_per_epoch=len(self.loader)
        )

    def epoch(self) -> None:
        """Train one epoch."""
        for x, rows in self.loader:
            z = self.net(x)
            loss = -(self.q[rows] * z.log_softmax(1)).sum(1).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self.schedule.step()
            with torch.no_grad():
                p = z.softmax(1) * self.S[rows]
                self.q[rows] = p / p.sum(1, keepdim=True)
