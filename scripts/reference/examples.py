"""A small valid file of each kind that people write: the page shows them, a test reads them."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "study.yaml": """\
model: bertlarge
micro_batch_size: [1, 2, 4]
hbm_size: 80 GB
""",
    "sweep.yaml": """\
model: [bertlarge, gpt2]
micro_batch_size: [1, [2, 4]]   # two values: 1 alone, then 2 and 4 searched together
hbm_size: [32, 80]
""",
    "setting.yaml": """\
design_space: today_5nm
cluster: dgx_h100
devices: 1024
tp: all
""",
    "plan.yaml": """\
model: megatrongpt3
device: a100_80gb
tp: 8
pp: 8
dp: 2
sequence_parallel: true
""",
    "training.yaml": """\
model: gpt3-175b
device: h100
devices: 1024
tokens: 300e9
global_batch_size: 1536
device_mtbf_hours: 1800 days
checkpoint_bandwidth: 100 GB/s
""",
    "space.yaml": """\
name: small
technology: technology.yaml      # a name that ships, or a path from this file
platform: platform.yaml
vector_functions: functions.yaml
axes:
  num_tc: [1, 2, 4]
  num_vc: [1, 2, 4]
  width: [64, 128]
  depth: [64, 128]
  width_vc: null
  glb_mib: [4, 16]
budget: {area_mm2: 200}
keep: {minimum_area_fraction: 0.0, any_single_tc: true, any_single_vc: true}
""",
    "chip.yaml": """\
num_tc: 8
num_vc: 2
width: 128
depth: 128
width_vc: 128
glb_mib: 128
""",
    "technology.yaml": """\
name: mine
node_nm: 22
tensor_pe_area: {value: 760, unit: um2, source: my layout}
vector_lane_area: {value: 760, unit: um2, source: my layout}
l2_area: {unit: um2, source: my memory compiler, capacity_bytes: [1024, 1048576], value: [6134, 1634130]}
glb_area: {unit: um2, source: my memory compiler, capacity_bytes: [2097152, 134217728], value: [3338220, 175423000]}
mac_energy: {value: 0.52, unit: pJ, source: my simulation}
vector_lane_energy: {value: 0.96, unit: pJ, source: my simulation}
l1_energy: {value: 0.02, unit: pJ/byte, source: my simulation}
sram_energy: {unit: pJ/byte, source: my memory compiler, capacity_bytes: [32768, 25165824], value: [0.15, 5.9]}
hbm_energy: {value: 31.2, unit: pJ/byte, source: data sheet}
network_energy: {value: 80, unit: pJ/byte, source: data sheet}
""",
    "platform.yaml": """\
frequency: 1 GHz                 # short for {value: 1.0e+9, unit: Hz, source: not stated}
hbm_bandwidth: 1.2 TB/s
glb_bandwidth: {value: 8192, unit: bytes/cycle, source: my design}
dataflows: [ws, os]
weight_load: {value: 1, unit: rows/cycle, source: my design}
startup: 200 ns
concurrent_tc_share: {value: 0.5, unit: fraction, source: choice}
l2_per_pe: {value: 16, unit: bytes, source: my design}
l2_minimum: {value: 1024, unit: bytes, source: my design}
element: {value: 2, unit: bytes, source: bfloat16}
""",
    "functions.yaml": """\
unit: cycles/element
sources: {design: my lanes}
functions:
  add: {cycles: 1, source: design}
  exp: {cycles: 8, source: design}
""",
    "memory.yaml": """\
name: mine
stack_bytes: 16 GiB
stack_bandwidth_bytes_per_s: 819 GB/s
interposer: true
phy_area: {value: 10, unit: mm2, low: 8, high: 13, source: my design}
controller_area: {value: 6, unit: mm2, low: 4, high: 10, source: my design}
edge: {value: 11, unit: mm, low: 9, high: 12, source: my design}
energy: {value: 28, unit: pJ/byte, low: 21, high: 39, source: data sheet}
idle_power: {value: 3, unit: W, low: 1, high: 6, source: assumption}
price_per_gib: {value: 12, unit: USD, low: 7, high: 22, source: quotation}
carbon_per_gib: {value: 0.35, unit: kg, low: 0.1, high: 0.9, source: assumption}
""",
    "prices.yaml": """\
date: 2026-01-01
salvaged: {value: 0.5, unit: fraction, low: 0, high: 0.9, source: my quotation}
die_test: {value: 5, unit: USD, low: 2, high: 15, source: my quotation}
substrate: {value: 0.04, unit: USD per mm2, low: 0.02, high: 0.08, source: my quotation}
interposer: {value: 0.08, unit: USD per mm2, low: 0.04, high: 0.2, source: my quotation}
interposer_stack_area: {value: 125, unit: mm2, low: 100, high: 150, source: my quotation}
assembly: {value: 12, unit: USD, low: 5, high: 30, source: my quotation}
assembly_yield: {value: 0.995, unit: fraction, low: 0.98, high: 0.999, source: my quotation}
board: {value: 800, unit: USD, low: 400, high: 2000, source: my quotation}
link: {value: 0.6, unit: USD per GB/s, low: 0.2, high: 2, source: my quotation}
switch: {value: 9, unit: USD per GB/s, low: 4, high: 20, source: my quotation}
switch_radix: {value: 64, unit: count, low: 32, high: 128, source: my quotation}
server: {value: 2500, unit: USD, low: 1200, high: 5000, source: my quotation}
host_power: {value: 150, unit: W, low: 50, high: 300, source: my quotation}
service: {value: 5, unit: years, low: 4, high: 6, source: my quotation}
utilisation: {value: 0.8, unit: fraction, low: 0.5, high: 0.95, source: my quotation}
pue: {value: 1.12, unit: ratio, low: 1.06, high: 1.56, source: my quotation}
electricity: {value: 0.083, unit: USD per kWh, low: 0.04, high: 0.16, source: my quotation}
grid_carbon: {value: 367, unit: g/kWh, low: 30, high: 700, source: my quotation}
fab_carbon: {value: 494, unit: g/kWh, low: 350, high: 600, source: my quotation}
package_carbon: {value: 0.15, unit: kg, low: 0.1, high: 0.5, source: my quotation}
server_carbon: {value: 170, unit: kg, low: 80, high: 400, source: my quotation}
""",
    "device.yaml": """\
name: mine
title: My device
aliases: []
evidence: data_sheet
cluster: cluster.yaml
software: software.yaml
matrix:
  peak: {bfloat16: 300 TFLOP/s, float32: 75 TFLOP/s}
  processors: {value: 100, unit: count, source: data sheet}
  efficiency: {value: 0.85, unit: fraction, source: assumption}
  sustained: {value: 0.9, unit: fraction, source: assumption}
  fill: {value: 50, unit: steps of k, source: assumption}
  tiles: [{m: 128, n: 128, efficiency: 1.0}]
  batched_bandwidth: {value: 0.7, unit: fraction, source: assumption}
  attention_forward: {value: 0.7, unit: fraction, source: assumption}
  attention_backward: {value: 0.6, unit: fraction, source: assumption}
memory:
  capacity: 80 GB
  bandwidth: 2 TB/s
  efficiency: {value: 0.8, unit: fraction, source: assumption}
  cache: 40 MB
launch:
  gap: 3 us
  alone: {}
  floor: {}
""",
    "software.yaml": """\
name: mine
host_issue: 20 us
fused_tails: [add]
fused_softmax_multiple: {value: 4, unit: count, source: its code}
unfused_softmax_kernels: {value: 5, unit: count, source: its code}
unfused_softmax_bytes:
  forward: {value: 40, unit: bytes, source: its code}
  backward: {value: 64, unit: bytes, source: its code}
masked_softmax: true
gradient_bytes: {value: 4, unit: bytes, source: its code}
accumulation: {value: 12, unit: bytes, source: its code}
reserved_memory: 2 GB
overlap_gradients: true
overlap_tensor: false
overlap_pipeline: true
attention: attention.yaml        # a name that ships, or a path from this file
contention: contention.yaml
""",
    "attention.yaml": """\
name: mine
forward: {value: 0.9, unit: fraction, source: my measurement}
backward: {value: 0.8, unit: fraction, source: my measurement}
""",
    "contention.yaml": """\
name: mine
link_share: {value: 0.2, unit: fraction, source: data sheets}
slowdown:
  products: {traffic_beyond: 0.1}
source: my measurement
""",
    "cluster.yaml": """\
name: mine
num_devices: 64
tiers:
  - {name: node, group_size: 8, bandwidth_bytes_per_s: 300 GB/s, latency_s: 3 us}
  - {name: network, group_size: 64, bandwidth_bytes_per_s: 25 GB/s, latency_s: 10 us, efficiency: 0.9}
""",
}
