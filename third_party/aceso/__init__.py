r"""Aceso's cost model (EuroSys 2024) on its own profiled databases, and a search over its plans
that proves its answer.

    python -m third_party.aceso evaluate PLAN.json --database FOLDER [--gpus-per-node 8]
    python -m third_party.aceso search --database FOLDER --model gpt --size 6_7B --gpus 16 \
        --global-batch-size 1024 --memory-limit-mb 28000 [--max-stages 16] [--time-limit S]
    python -m third_party.aceso baselines ...  # the same arguments
    python -m third_party.aceso compare CASES.yaml --database FOLDER --output FOLDER

What is where: ``models`` and ``database`` read Aceso's folders, ``plans`` its plan files;
``stage_prices``, ``resharding`` and ``evaluation`` are its cost model. The search: ``spaces`` what
a stage may do, ``relaxed_stages`` bounds on all stages, ``exact_stages`` the fastest way to run
one, ``partitions`` the best cut into stages, ``pricing`` and ``search`` the rest. ``baselines`` are
simpler searches, ``comparison`` sets all beside each other on ``compared_cases``.
"""
