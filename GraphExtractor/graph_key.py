"""What a model graph is made for. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from GraphExtractor.names import label
from phaze_common.choices import Attention, ExpertWidth, KeyExchange, StageCuts, TensorLayout


@dataclass(frozen=True)
class GraphKey:
    """What a model graph was made for.

    ``cp`` devices share the ``sequence_length`` tokens of a sequence, ``ep`` devices with samples
    of their own share the experts, each of which one device or tp divide (``etp``); the device
    gets ``expert_load`` times the mean of their rows. A
    ``layout`` of two axes divides products over ``tp`` x ``tp2`` devices, columns by rows, whose
    rows share tokens too. ``exchange`` is how the devices that share tokens attend to all of them.
    With ``cuts`` inside layers each of their parts is a layer of the graph.
    """

    model: str  # as it was named
    micro_batch_size: int  # samples of a micro-batch
    sequence_length: int
    tp: int
    # fused and tiled, or separate products with the scores in memory
    attention: Attention = Attention.FLASH
    # whether what tensor parallelism leaves whole is split along the sequence
    sequence_parallel: bool = False
    dtype: str = "bfloat16"  # number format
    cp: int = 1
    ep: int = 1
    etp: ExpertWidth = ExpertWidth.SAME
    layout: TensorLayout = TensorLayout.ONE_D
    tp2: int = 1
    exchange: KeyExchange = KeyExchange.GATHER
    cuts: StageCuts = StageCuts.BETWEEN
    expert_load: float = 1.0

    @property
    def sequence_devices(self) -> int:
        """Devices among which tokens are divided; those of sequence parallelism gather them."""
        return self.cp * self.tp2

    @property
    def expert_tp(self) -> int:
        """Devices that divide an expert."""
        return self.etp.of(self.tp)

    @property
    def label(self) -> str:
        """The model's name as it is safe in file names."""
        return label(self.model)
