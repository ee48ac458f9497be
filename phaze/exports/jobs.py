"""Job files around a launch: a batch script of Slurm, an indexed job of Kubernetes.

Both start one process on every node, which starts one for each of its devices: ``NODE_RANK``
numbers the nodes, ``MASTER_ADDR`` is the first of them, as the launch scripts take them.
"""

from __future__ import annotations

import re
from string import Template

from phaze.exports.launch import ExportedFile, Launch
from phaze.exports.registry import HOMES, exporter
from phaze.exports.words import commented
from phaze_common.errors import InputError

KINDS = ("slurm", "kubernetes")
_SLURM = Template("""\
#!/usr/bin/env bash
#SBATCH --job-name=$job
#SBATCH --nodes=$nodes                # the plan's $devices devices, $each on a node
#SBATCH --ntasks-per-node=1           # one process, which starts one for each device
#SBATCH --gpus-per-node=$each
#SBATCH --exclusive                   # predictions are of nodes without other work
#SBATCH --output=%x-%j.log
# $told
set -euo pipefail
cd "$${SLURM_SUBMIT_DIR}"             # the folder of this file and of $script
export MASTER_ADDR="$$(scontrol show hostnames "$${SLURM_JOB_NODELIST}" | head -n 1)"
export MASTER_PORT="$${MASTER_PORT:-29500}"
export NNODES=$nodes GPUS_PER_NODE=$each
# groups lie over consecutive nodes, as Slurm numbers them
srun --kill-on-bad-exit=1 bash -c 'NODE_RANK=$${SLURM_NODEID} exec bash ./$script'
""")
_KUBERNETES = Template("""\
# $told
# kubectl create configmap $job --from-file=. (in the folder of this file), then kubectl apply -f job.yaml
apiVersion: v1
kind: Service   # gives the pods their names, of which the first is MASTER_ADDR
metadata: {name: $job}
spec:
  clusterIP: None
  selector: {job-name: $job}
---
apiVersion: batch/v1
kind: Job
metadata: {name: $job}
spec:
  completionMode: Indexed   # pods are numbered, which is NODE_RANK
  completions: $nodes
  parallelism: $nodes       # all nodes at once: the plan has $devices devices, $each on a node
  backoffLimit: 0           # a node that fails ends all, as they wait for each other
  template:
    spec:
      subdomain: $job
      restartPolicy: Never
      containers:
        - name: node
          image: IMAGE   # of yours, with the program that is launched
          command: [bash, /launch/$script]
          env:
            - name: NODE_RANK
              valueFrom: {fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
            - {name: MASTER_ADDR, value: $job-0.$job}
            - {name: MASTER_PORT, value: "29500"}
            - {name: NNODES, value: "$nodes"}
            - {name: GPUS_PER_NODE, value: "$each"}
          resources:
            limits: {nvidia.com/gpu: $each}
          volumeMounts:
            - {name: launch, mountPath: /launch}
            - {name: shared-memory, mountPath: /dev/shm}
      volumes:
        - name: launch
          configMap: {name: $job}
        - name: shared-memory   # of NCCL, for which 64 MiB are too few
          emptyDir: {medium: Memory}
""")


def check_job(kind: str, program: str) -> None:
    """Refuse a kind of job that there is not, and programs without a script that starts a node.

    Raises:
        InputError: says what there is.
    """
    if kind not in KINDS:
        raise InputError(f"--job is {kind!r:.100}; give {' or '.join(KINDS)}")
    if program not in HOMES or not exporter(program).node_script:
        others = [name for name in HOMES if exporter(name).node_script]
        raise InputError(
            f"--job {kind}: what is exported for {program} starts no nodes; export for "
            f"{', '.join(others)}"
        )


def job_file(kind: str, program: str, launch: Launch) -> ExportedFile:
    """The job of ``kind``, one that there is, that runs what was exported for ``program``.

    Raises:
        InputError: the nodes are used unevenly.
    """
    devices, each, model = launch.degrees.devices, launch.processes_per_node, launch.plan.model
    if launch.nodes * each != devices:
        raise InputError(
            f"--job {kind}: the plan's {devices} devices are no whole number of nodes of {each}; "
            "change tp, pp, dp or cp so that they are"
        )
    name = re.sub("[^a-z0-9]+", "-", model.lower())[:40].strip("-")
    words = {
        "job": f"phaze-{name}".strip("-"),  # a name of DNS
        "nodes": launch.nodes,
        "devices": devices,
        "each": each,
        "script": exporter(program).node_script,
        "told": commented(f"{model} on {devices} x {launch.device}, cluster {launch.cluster}"),
    }
    if kind == "slurm":
        return ExportedFile("job.sbatch", _SLURM.substitute(words), executable=True)
    return ExportedFile("job.yaml", _KUBERNETES.substitute(words))
