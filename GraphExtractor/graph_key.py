"""What a model graph is made for. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from GraphExtractor.names import label
from phaze_common.choices import Attention, KeyExchange, StageCuts, TensorLayout


@dataclass(frozen=True)
class GraphKey:
    """What a model graph was made for.

    ``cp`` devices share the ``sequence_length`` tokens of a sequence, ``ep`` devices with samples
    of their own share the experts. A ``layout`` of two axes divides products over ``tp`` x ``tp2``
    devices, columns by rows, whose rows share tokens too. ``exchange`` is how the devices that
    share tokens attend to all of them. With ``cuts`` inside layers each of their parts is a layer
    of the graph.
    """

    model: str
    micro_batch_size: int
    sequence_length: int
    tp: int
    attention: Attention = Attention.FLASH
    sequence_parallel: bool = False
    dtype: str = "bfloat16"
    cp: int = 1
    ep: int = 1
    layout: TensorLayout = TensorLayout.ONE_D
    tp2: int = 1
    exchange: KeyExchange = KeyExchange.GATHER
    cuts: StageCuts = StageCuts.BETWEEN

    @property
    def sequence_devices(self) -> int:
        """Devices among which tokens are divided; those of sequence parallelism gather them."""
        return self.cp * self.tp2

    @property
    def label(self) -> str:
        """The model's name as it is safe in file names."""
        return label(self.model)
