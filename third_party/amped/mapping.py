"""AMPeD's mapping: degrees inside and between nodes, and what they multiply to."""

from phaze_common.array_types import FloatArray

from .calculated import Quantities, calculated

DEGREES = ("data_parallel_degree", "tensor_parallel_degree", "pipeline_parallel_degree")
INTRA = tuple(f"intra_node_{name}" for name in DEGREES)
INTER = tuple(f"inter_node_{name}" for name in DEGREES)


class MappingQuantities(Quantities):
    """Degrees of parallelism and the accelerators they need, as published."""

    intra_node_data_parallel_degree: FloatArray
    intra_node_tensor_parallel_degree: FloatArray
    intra_node_pipeline_parallel_degree: FloatArray
    inter_node_data_parallel_degree: FloatArray
    inter_node_tensor_parallel_degree: FloatArray
    inter_node_pipeline_parallel_degree: FloatArray
    zero_stage: FloatArray
    r_non_overlapping: FloatArray

    @calculated("inside times between nodes")
    def data_parallel_degree(self) -> FloatArray:
        return self.intra_node_data_parallel_degree * self.inter_node_data_parallel_degree

    @calculated("inside times between nodes")
    def tensor_parallel_degree(self) -> FloatArray:
        return self.intra_node_tensor_parallel_degree * self.inter_node_tensor_parallel_degree

    @calculated("inside times between nodes")
    def pipeline_parallel_degree(self) -> FloatArray:
        return self.intra_node_pipeline_parallel_degree * self.inter_node_pipeline_parallel_degree

    @calculated()
    def accelerators_per_node_required(self) -> FloatArray:
        return (
            self.intra_node_data_parallel_degree
            * self.intra_node_tensor_parallel_degree
            * self.intra_node_pipeline_parallel_degree
        )

    @calculated()
    def number_of_accelerators_required(self) -> FloatArray:
        return (
            self.data_parallel_degree * self.tensor_parallel_degree * self.pipeline_parallel_degree
        )

    @calculated()
    def number_of_nodes_required(self) -> FloatArray:
        return self.number_of_accelerators_required // self.accelerators_per_node_required
