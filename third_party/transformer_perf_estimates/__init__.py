"""Answers the questions of transformer-perf-estimates (arXiv 2410.00273, PMBS at SC24) under its
own formulas.

    python -m third_party.transformer_perf_estimates evaluate CASE.json [--as-published] python -m
    third_party.transformer_perf_estimates search CASE.json [--as-published] [--top N] python -m
    third_party.transformer_perf_estimates compare CASE.json [--format json]      # and under our
    own physics python -m third_party.transformer_perf_estimates curves CASES.json [--output
    FILE.csv]  # over GPUs, systems, fast domains

Which formula is where: ``collectives`` messages, ``operators`` work of one operator, ``blocks``
operators of a layer, ``timing`` their seconds, ``totals`` an iteration and its memory, ``spaces``
what is searched, ``corrections`` what is put right unless ``--as-published``; ``case_files`` the
format; ``own_hardware`` and ``own_requests`` the same question to our own physics, ``comparison``
and ``own_parts`` what that changes; ``curves`` the best over the number of GPUs. All of it is
arrays over configurations:

    training = Training(Strategy.TWO_D, published_model("gpt3_1T"), published_system("B200"), 64,
    16384, 4096) found = search(training) estimate_at(found.estimates, found.best[0]).seconds
"""

from .configurations import Configuration, Configurations, LayerLayouts, Strategy, Training
from .corrections import AS_PUBLISHED, CORRECTED, Correction
from .estimates import Estimate, OperatorEstimate, estimate_at
from .models import TransformerModel, published_model, published_models
from .search import Search, best_of, search
from .spaces import space
from .systems import System, published_system, published_systems
from .totals import Estimates, estimate

__all__ = [
    "AS_PUBLISHED",
    "CORRECTED",
    "Configuration",
    "Configurations",
    "Correction",
    "Estimate",
    "Estimates",
    "LayerLayouts",
    "OperatorEstimate",
    "Search",
    "Strategy",
    "System",
    "Training",
    "TransformerModel",
    "best_of",
    "estimate",
    "estimate_at",
    "published_model",
    "published_models",
    "published_system",
    "published_systems",
    "search",
    "space",
]
