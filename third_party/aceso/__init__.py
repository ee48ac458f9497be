"""Aceso's cost model (EuroSys 2024) on its own profiled databases, and a search over its plans that proves its answer.

python -m third_party.aceso evaluate PLAN.json --database FOLDER [--gpus-per-node 8]
"""
