"""AMPeD's question (Moolchandani et al., ISPASS 2023): how long a training takes, by cause, and
which degrees are best.

    # config_summary.txt, training_time_breakdown.txt; JSON on standard output
    python -m third_party.amped run CONFIG.json
    # all permutations of batch size and the six degrees
    python -m third_party.amped optimize CONFIG.json

    from third_party.amped import estimate_training_time
    estimate_training_time("H100 PCIe").days

The configuration's format is at the head of ``configuration``, the formulas are in ``mapping``,
``network``, ``system`` and ``times``, and ``corrections`` says what is wrong with those published.
No code of AMPeD is used; its repository has none.
"""

from third_party.amped.breakdown import Breakdown as Breakdown
from third_party.amped.breakdown import Line as Line
from third_party.amped.command_line import main as main
from third_party.amped.configuration import Configuration as Configuration
from third_party.amped.configuration import configuration_of as configuration_of
from third_party.amped.configuration import read_configuration as read_configuration
from third_party.amped.corrections import CORRECTIONS as CORRECTIONS
from third_party.amped.estimate import TrainingTime as TrainingTime
from third_party.amped.estimate import estimate as estimate
from third_party.amped.estimate import estimate_training_time as estimate_training_time
from third_party.amped.estimate import estimateTrainingTime as estimateTrainingTime
from third_party.amped.lookup import shipped_tables as shipped_tables
from third_party.amped.lookup import with_tables_of as with_tables_of
from third_party.amped.search import SearchResult as SearchResult
from third_party.amped.search import optimize as optimize
from third_party.amped.times import TimeQuantities as TimeQuantities
