#!/usr/bin/env bash
# A launch of Megatron-LM as users have them, which scripts/benchmark.py reads and nothing starts.
set -euo pipefail

torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336 --swiglu --normalization RMSNorm \
  --seq-length 8192 --max-position-embeddings 8192 --position-embedding-type rope --disable-bias-linear \
  --vocab-size 128256 --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 128 \
  --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel --bf16 \
  --use-flash-attn --use-distributed-optimizer
