"""``phaze accelerators``: the accelerators of a design space as a file of the original's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from phaze.cli import mode
from phaze.cli.exit_status import DONE
from phaze.cli.printing import STDOUT, print_rows
from phaze.settings.folders import folders_of
from phaze.settings.request import HardwareSettings
from phaze_common.echo import say
from phaze_common.files import check_ending, named_file, output_file
from phaze_common.settings import COMMAND_LINE
from phaze_common.written_files import write_output


@dataclass(frozen=True, kw_only=True)
class Accelerators(mode.Command):
    """Write the accelerators of a design space with their areas (the original's cores.json)."""

    settings: Mapping[str, object] = mode.setting_flags(
        mode.search_settings, only={"design_space": None}
    )
    output: str | None = mode.flag(
        None, "file to write (default Estimator/arch_configs/cores.json; - for stdout)", "FILE"
    )
    force: bool = mode.force_flag()


def run(command: Accelerators) -> int:
    """Write the accelerators of a design space in the original's cores.json format."""
    from Estimator.chips.cores_file import cores_json
    from Estimator.chips.design_space_files import load_design_space
    from phaze.settings.designed_chips import CORES

    specified = mode.search_settings().read(command.settings, COMMAND_LINE).get("design_space")
    name = named_file("design_space", specified or str(HardwareSettings.design_space))
    generated = load_design_space(name).generate()
    if command.output == STDOUT:
        say(sys.stdout, cores_json(generated).decode().splitlines())
        return DONE
    output = (
        str(folders_of(None).arch_configs / CORES) if command.output is None else command.output
    )
    path = output_file(output, ", or - for standard output")
    check_ending(path, {".json"}, "taken for accelerators", ".json")
    write_output(path, cores_json(generated), force=command.force)
    row: dict[str, object] = {
        "design_space": name,
        "accelerators": len(generated),
        "tensor_core_configurations": len(generated.tensor_cores),
        "vector_core_configurations": len(generated.vector_cores),
        "smallest_mm2": round(float(generated.area_mm2.min()), 4),
        "largest_mm2": round(float(generated.area_mm2.max()), 4),
        "file": str(path),
    }
    print_rows("accelerators", [row], command)
    return DONE


MODE = mode.Mode("accelerators", mode.CHECK_AND_FIT, Accelerators, run)
