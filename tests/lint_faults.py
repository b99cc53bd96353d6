"""One planted fault and one good twin for each rule of `lint`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from lint_objects import (
    FAMILY,
    GPU,
    MODEL,
    REMOVED,
    SMALL,
    Object,
    alert,
    args,
    compute_class,
    config_map,
    gpus,
    hpa,
    keda,
    merged,
    mig,
    nim,
    node_pool,
    of_cpu,
    of_pods,
    on,
    probe,
    server,
    service,
    shared,
    strategy,
)

Twins = tuple[Sequence[Object], Sequence[Object]]

A100, L40S, L4, T4, P100 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-L40S", "NVIDIA-L4", "Tesla-T4", "Tesla-P100-PCIE-16GB"
LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"
SHM = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "shm", "mountPath": "/dev/shm"}]}  # noqa: S108 - a mount point
CACHE = {"name": "cache", "persistentVolumeClaim": {"claimName": "chat-weights"}}
WITH_SHM = {"volumes": [CACHE, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}]}
MOUNTS = {"volumeMounts": REMOVED}
BARE = {"volumes": REMOVED}
NO_STARTUP = {"startupProbe": REMOVED}
SPOT_POD = {"nodeSelector": {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-accelerator": "nvidia-l4"}}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
ROLLING = {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
L4_RULE = {"machineType": "g2-standard-4", "gpu": {"type": "nvidia-l4", "count": 1}}
NODE = "node.kubernetes.io/instance-type"


def tp(size: int, *, model: str = LLAMA_70B, mounts: Object | None = None) -> Object:
    """A container of several GPUs."""
    return {
        **args("--max-model-len", "8192", "-tp", str(size), model=model),
        **gpus(size),
        **(SHM if mounts is None else mounts),
    }


def wide(size: int, **container: Any) -> Object:
    """A server over several GPUs with shared memory."""
    return server({**tp(size), **container}, {**on(A100), **WITH_SHM})


def sidecar(**more: Any) -> Object:
    """A speech server beside the engine."""
    image = {"name": "speech", "image": "ghcr.io/speaches-ai/speaches:0.9.0-cuda"}
    made = server(args("--max-model-len", "4096", "--gpu-memory-utilization", more.pop("share", "0.9")))
    variables = [{"name": "WHISPER__INFERENCE_DEVICE", "value": more.pop("device", "cuda")}]
    made["spec"]["template"]["spec"]["containers"].append({**image, "env": variables, **more})
    return made


def budgeted(name: str, share: str) -> Object:
    """A small engine that takes a share of its GPU."""
    return server(args("--gpu-memory-utilization", share, "--max-model-len", "4096", model=SMALL), on(L40S), name=name)


def env(name: str, value: str) -> Object:
    """One variable."""
    return {"env": [{"name": name, "value": value}]}


def triton(**container: Any) -> Object:
    """Triton with its models on a claim."""
    ports = [{"name": "http", "containerPort": 8000}, {"name": "grpc", "containerPort": 8001}]
    ready = probe("/v2/health/ready", 8000)
    base = {
        "image": "nvcr.io/nvidia/tritonserver:26.07-py3",
        "command": ["tritonserver", "--model-repository=/cache"],
        "args": REMOVED,
        "ports": [*ports, {"name": "metrics", "containerPort": 8002}],
        "startupProbe": {**ready, "failureThreshold": 60},
        "readinessProbe": ready,
        "livenessProbe": probe("/v2/health/live", 8000, failureThreshold=6),
    }
    return server(merged(base, container))


def kserve(least: int, most: int) -> Object:
    """An InferenceService of vLLM."""
    pod = server()["spec"]["template"]["spec"]
    predictor = {"minReplicas": least, "maxReplicas": most, **pod}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": "chat"},
        "spec": {"predictor": predictor},
    }


def budget(**spec: Any) -> Object:
    """A PodDisruptionBudget of the server."""
    selector = {"matchLabels": {"app": "chat"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "chat"},
        "spec": {"selector": selector, **spec},
    }


def monitor(port: str) -> Object:
    """A PodMonitor of the server."""
    spec = {"selector": {"matchLabels": {"app": "chat"}}, "podMetricsEndpoints": [{"port": port}]}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": {"name": "chat"}, "spec": spec}


def quota(count: str) -> Object:
    """A ResourceQuota of GPUs."""
    spec = {"hard": {f"requests.{GPU}": count}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": spec}


def claim(mode: str) -> Object:
    """The claim that the server mounts."""
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "100Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "chat-weights"}, "spec": spec}


def listed(*resources: tuple[str, int]) -> Object:
    """Shared resources with their replicas."""
    return {"resources": [{"name": name, "replicas": count} for name, count in resources]}


def plugin(sharing: Object, **more: Any) -> Object:
    """A configuration of the device plugin."""
    return config_map({"config.yaml": yaml.safe_dump({"version": "v1", "sharing": sharing, **more})})


def limit_range(**default: str) -> Object:
    """A LimitRange with defaults for containers."""
    spec = {"limits": [{"type": "Container", "default": default}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}, "spec": spec}


def ollama(tokens: str) -> Object:
    """A server that loads models on demand."""
    made = {
        "image": "ollama/ollama:0.24.0",
        "args": REMOVED,
        "ports": [{"name": "http", "containerPort": 11434}],
        "startupProbe": probe("/api/tags", failureThreshold=60),
        "readinessProbe": probe("/api/tags"),
        "livenessProbe": probe("/api/tags", failureThreshold=6),
        **env("OLLAMA_NUM_CTX", tokens),
    }
    return server(made, on(P100))


def cache(mode: str) -> Object:
    """A NIMCache."""
    spec = {
        "source": {
            "ngc": {"modelPuller": "nvcr.io/nim/meta/llama:1.8.0", "pullSecret": "ngc", "authSecret": "ngc-api"}
        },
        "storage": {"pvc": {"create": True, "size": "50Gi", "volumeAccessMode": mode}},
    }
    return {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": "NIMCache", "metadata": {"name": "cache"}, "spec": spec}


def profiled(profile: str) -> Object:
    """A NIMCache of one profile."""
    made: Object = merged(cache("ReadWriteMany"), {"spec": {"source": {"ngc": {"model": {"profiles": [profile]}}}}})
    return made


def balancer(**more: Any) -> Object:
    """A public service of the server."""
    return service(type="LoadBalancer", **more)


def _fraction(value: str) -> Object:
    """A server with a fraction by annotation."""
    made = server({"resources": {"requests": {GPU: REMOVED}, "limits": {GPU: REMOVED}}})
    made["spec"]["template"]["metadata"]["annotations"] = {"gpu-fraction": value}
    return made


def _cut_only(*numbers: int) -> Object:
    """A layout that names these GPUs."""
    rows = [{"devices": list(numbers), "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}]
    return config_map({"config.yaml": yaml.safe_dump({"version": "v1", "mig-configs": {"two": rows}})}, "mig-config")


def _claim(**constraint: str) -> Object:
    """Two MIG devices by DRA."""
    requests = [{"name": name, "exactly": {"deviceClassName": "mig.nvidia.com"}} for name in ("large", "small")]
    devices: Object = {"requests": requests}
    if constraint:
        devices["constraints"] = [{"requests": ["large", "small"], **constraint}]
    metadata = {"name": "slices", "namespace": "models"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


def _nim_slice(version: str) -> Object:
    """An LLM NIM on a MIG slice."""
    made = nim(image={"tag": version})
    made["spec"]["resources"] = {"limits": {"nvidia.com/mig-3g.40gb": 1}}
    return made


def _of_memory() -> Object:
    """Memory use."""
    goal = {"type": "Utilization", "averageUtilization": 80}
    return {"type": "Resource", "resource": {"name": "memory", "target": goal}}


def _short(made: Object) -> Object:
    """With a startup probe of a minute and a half."""
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["startupProbe"] = {**container["startupProbe"], "failureThreshold": 9}
    return made


def _up(period: int) -> Object:
    """A scale-up that doubles in each period."""
    step = {"type": "Percent", "value": 100, "periodSeconds": period}
    return {"scaleUp": {"stabilizationWindowSeconds": 0, "policies": [step]}}


def _reserved(zones: list[str]) -> Object:
    """A rule of a specific reservation."""
    reservation = {"affinity": "Specific", "specific": [{"name": "r1", "project": "p"}]}
    return {**L4_RULE, "reservations": reservation, **({"location": {"zones": zones}} if zones else {})}


def _old_pool(taint: Object) -> Object:
    """A NodePool of a version without schema here."""
    made = node_pool(FAMILY)
    made["apiVersion"] = "karpenter.sh/v1beta1"
    made["spec"]["template"]["spec"]["taints"] = [taint]
    return made


FAULTS: dict[str, Twins] = {
    "RS6001": ([server(spec={"replica": 2})], [server(spec={"replicas": 2})]),
    "RS6002": ([server(env("PORT", 8000))], [server(env("PORT", "8000"))]),  # type: ignore[arg-type]
    "RS6003": ([merged(service(), {"spec": {"ports": [{"name": "http"}]}})], [service()]),
    "RS6004": (
        [
            server(pod={"restartPolicy": "Always"}),
            keda(RUNNING, cooldownPeriod=-1, fallback={"failureThreshold": 1, "replicas": 1, "behavior": "none"}),
        ],
        [keda(RUNNING)],
    ),
    "RS6011": ([server(spec={"selector": {"matchLabels": {"app": "other"}}})], [server()]),
    "RS6012": ([server(pod=BARE)], [server()]),
    "RS6013": ([server(), service(ports=[{"port": 80, "targetPort": "web"}])], [server(), service()]),
    "RS6014": ([server({"readinessProbe": probe(port="web")})], [server()]),
    "RS6015": (
        [merged(server(), {"metadata": {"labels": {"model": MODEL}}})],
        [merged(server(), {"metadata": {"labels": {"model": "llama"}}})],
    ),
    "RS6016": ([config_map({"a": "x" * 1_100_000})], [config_map({"a": "x" * 1000})]),
    "RS6101": ([server(pod=on(T4))], [server()]),
    "RS6102": (
        [server(args("--max-model-len", "131072"), on(L4)), ollama("131072"), ollama("1310720")],
        [server(args("--max-model-len", "16384"), on(L4)), ollama("8192")],
    ),
    "RS6103": (
        [server(args("--max-model-len", "4096", model=SMALL), on(T4))],
        [server(args("--max-model-len", "4096", "--dtype", "half", model=SMALL), on(T4))],
    ),
    "RS6104": ([wide(3)], [wide(4)]),
    "RS6105": ([server({**tp(4), **gpus(2)}, {**on(A100), **WITH_SHM})], [wide(4)]),
    "RS6106": ([server(args("--context-length", "4096"))], [server()]),
    "RS6107": ([server(args("--disable-log-requests", "--max-model-len", "8192"))], [server()]),
    "RS6108": (
        [server({**args(model="Qwen/Qwen3-8B"), "image": "vllm/vllm-openai:v0.6.3"})],
        [server(args("--max-model-len", "8192", model="Qwen/Qwen3-8B"))],
    ),
    "RS6109": (
        [server(args("--max-model-len", "29000", "--gpu-memory-utilization", "0.9"), on(L4))],
        [server(args("--max-model-len", "8192", "--gpu-memory-utilization", "0.9"), on(L4))],
    ),
    "RS6110": (
        [server({**args("--gpu-memory-utilization", "0.5", "--max-model-len", "8192")}, on("AGX-Thor"))],
        [server({**args("--gpu-memory-utilization", "0.25", "--max-model-len", "8192")}, on("AGX-Thor"))],
    ),
    "RS6111": ([server(args(), {"nodeSelector": REMOVED})], [server(pod={"nodeSelector": REMOVED})]),
    "RS6112": ([server(tp(4, mounts={}), on(A100))], [wide(4)]),
    "RS6113": ([server(env("USE_VLLM_V1", "1"))], [server(env("VLLM_USE_V1", "1"))]),
    "RS6114": ([server(tp(2, model=SMALL), {**on(A100), **WITH_SHM})], [wide(4)]),
    "RS6115": (
        [server({"args": ["--model", "/cache"]}, {"volumes": [{"name": "cache", "emptyDir": {}}]})],
        [server({"args": ["--model", "/cache"]})],
    ),
    "RS6116": ([server({"image": "vllm/vllm-openai:v0.4.3"})], [server()]),
    "RS6117": (
        [server({**MOUNTS, "resources": {"limits": {"memory": "16Gi", GPU: 1}}}, BARE)],
        [server({**MOUNTS, "resources": {"limits": {"memory": "32Gi", GPU: 1}}}, BARE)],
    ),
    "RS6118": ([nim(resources={"requests": {"memory": "8Gi"}})], [nim(resources={"requests": {"memory": "32Gi"}})]),
    "RS6119": ([wide(4, resources={"limits": {"memory": "16Gi", GPU: 4}})], [wide(4)]),
    "RS6120": ([server(args("--gpu-memory-utilization", "0.97", "--max-model-len", "8192"))], [server()]),
    "RS6121": ([wide(16)], [wide(8)]),
    "RS6201": ([server({"resources": {"limits": REMOVED, "requests": {"cpu": "4", GPU: REMOVED}}})], [server()]),
    "RS6202": ([sidecar()], [sidecar(device="cpu")]),
    "RS6203": (
        [
            server(
                {"resources": {"limits": REMOVED, "requests": {"cpu": "4", GPU: REMOVED}}},
                {"runtimeClassName": "nvidia"},
            )
        ],
        [server(pod={"runtimeClassName": "nvidia"})],
    ),
    "RS6204": ([limit_range(**{GPU: "1"}), server()], [limit_range(cpu="1"), server()]),
    "RS6205": ([server({"resources": {"requests": {GPU: 1}, "limits": {GPU: 2}}})], [server()]),
    "RS6206": ([server(env("NVIDIA_VISIBLE_DEVICES", "all"))], [server(env("NVIDIA_DRIVER_CAPABILITIES", "all"))]),
    "RS6207": ([server(env("CUDA_VISIBLE_DEVICES", "0"))], [server(env("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))]),
    "RS6208": (
        [node_pool(FAMILY), server(pod={"tolerations": REMOVED, "nodeSelector": REMOVED})],
        [node_pool(FAMILY), server(pod={"nodeSelector": REMOVED})],
    ),
    "RS6209": (
        [strategy("mixed"), mig("cut", _1g_10gb=7), server(pod={"nodeSelector": REMOVED})],
        [
            strategy("mixed"),
            mig("cut", _1g_10gb=7),
            server({**gpus(1, "nvidia.com/mig-1g.10gb"), **args(model=SMALL)}, {"nodeSelector": REMOVED}),
        ],
    ),
    "RS6210": (
        [server({**args("-tp", "2", model=SMALL), **gpus(2, "nvidia.com/mig-1g.10gb")}, {"nodeSelector": REMOVED})],
        [server({**args(model=SMALL), **gpus(1, "nvidia.com/mig-1g.10gb")}, {"nodeSelector": REMOVED})],
    ),
    "RS6211": ([server(gpus(1, "nvidia.com/mig-5g.50gb"))], [server(gpus(1, "nvidia.com/mig-3g.40gb"))]),
    "RS6212": (
        [server(gpus(2), {"nodeSelector": {NODE: "g5.xlarge"}})],
        [server(gpus(4), {"nodeSelector": {NODE: "g5.12xlarge"}})],
    ),
    "RS6213": (
        [
            server(
                pod={
                    "nodeSelector": {
                        "cloud.google.com/gke-accelerator": "nvidia-l4",
                        "eks.amazonaws.com/nodegroup": "gpu",
                    }
                }
            )
        ],
        [server(pod={"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}})],
    ),
    "RS6301": (
        [shared(), budgeted("a", "0.7"), budgeted("b", "0.5")],
        [shared(), budgeted("a", "0.45"), budgeted("b", "0.5")],
    ),
    "RS6302": ([shared()], [shared(rename=True)]),
    "RS6303": ([shared("mps"), server(gpus(2))], [shared("mps"), server(gpus(1))]),
    "RS6304": ([shared(replicas=1)], [shared(replicas=2)]),
    "RS6305": (
        [plugin({"timeSlicing": listed(("nvidia.com/mig-2g.10gb", 2), ("nvidia.com/mig-3g.20gb", 3))})],
        [shared(replicas=4, name="nvidia.com/mig-3g.20gb")],
    ),
    "RS6306": ([shared("mps", 4), server(pod=on(L4))], [shared("mps", 2), server(pod=on(A100))]),
    "RS6307": ([shared("mps"), server(pod=on(P100))], [shared("mps"), server()]),
    "RS6308": (
        [plugin({"mps": listed((GPU, 2)), "timeSlicing": listed((GPU, 2))})],
        [shared("mps")],
    ),
    "RS6309": ([mig("cut", _1g_10gb=8)], [mig("cut", _1g_10gb=7)]),
    "RS6310": ([sidecar()], [server()]),
    "RS6311": ([sidecar(share="0.65")], [server()]),
    "RS6312": ([shared("mps", name="nvidia.com/mig-1g.10gb")], [shared("timeSlicing", name="nvidia.com/mig-1g.10gb")]),
    "RS6313": (
        [plugin({"timeSlicing": listed((GPU, 2))}, flags={"renameByDefault": True})],
        [shared(rename=True)],
    ),
    "RS6314": ([_fraction("0.3")], [_fraction("0.95")]),
    "RS6320": ([_cut_only(0, 2)], [_cut_only(0, 1, 2)]),
    "RS6321": ([_claim()], [_claim(matchAttribute="gpu.nvidia.com/parentUUID")]),
    "RS6401": (
        [server({**NO_STARTUP, "livenessProbe": probe(initialDelaySeconds=30)})],
        [server({**NO_STARTUP, "livenessProbe": probe(initialDelaySeconds=400)})],
    ),
    "RS6402": (
        [server({**NO_STARTUP, **MOUNTS, "livenessProbe": probe(initialDelaySeconds=300)}, BARE)],
        [server({**NO_STARTUP, "livenessProbe": probe(initialDelaySeconds=300)})],
    ),
    "RS6403": ([server({"readinessProbe": probe(initialDelaySeconds=600)})], [server()]),
    "RS6404": ([triton(readinessProbe=probe("/v2/health/ready", 8002))], [triton()]),
    "RS6405": ([server({"readinessProbe": {"tcpSocket": {"port": "http"}, "httpGet": REMOVED}})], [server()]),
    "RS6406": ([server({**NO_STARTUP, "livenessProbe": REMOVED})], [server()]),
    "RS6407": (
        [server({"command": ["bash", "-c", f"pip install flash-attn && vllm serve {MODEL}"], "args": REMOVED})],
        [server({"command": ["bash", "-c", f"vllm serve {MODEL} --max-model-len 8192"], "args": REMOVED})],
    ),
    "RS6408": ([_short(ollama("8192"))], [ollama("8192")]),
    "RS6409": ([server({**NO_STARTUP, "livenessProbe": probe(failureThreshold=90)})], [server()]),
    "RS6410": (
        [server(spec=ROLLING)],
        [server(spec={"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"}})],
    ),
    "RS6411": ([server(spec={"progressDeadlineSeconds": 300})], [server()]),
    "RS6412": (
        [server({"lifecycle": {"preStop": {"sleep": {"seconds": 90}}}})],
        [server({"lifecycle": {"preStop": {"sleep": {"seconds": 15}}}})],
    ),
    "RS6413": ([server(pod={**SPOT_POD, "terminationGracePeriodSeconds": 30})], [server()]),
    "RS6414": ([server(pod=SPOT_POD)], [server(pod=SPOT_POD, spec={"replicas": 2})]),
    "RS6415": ([server(), budget(minAvailable=1)], [server(), budget(maxUnavailable=1)]),
    "RS6416": ([server(MOUNTS, BARE)], [server()]),
    "RS6417": (
        [
            server(
                {**NO_STARTUP, "livenessProbe": probe(initialDelaySeconds=300)},
                {"volumes": [{"name": "cache", "emptyDir": {}}]},
            )
        ],
        [server(pod={"volumes": [{"name": "cache", "emptyDir": {}}]})],
    ),
    "RS6418": (
        [claim("ReadWriteOnce"), server(spec={"replicas": 2})],
        [claim("ReadWriteMany"), server(spec={"replicas": 2})],
    ),
    "RS6419": ([server({"readinessProbe": probe("/healthz")})], [server()]),
    "RS6501": ([server(), hpa(of_cpu())], [server(), hpa(of_pods("vllm_num_requests_running", "20"))]),
    "RS6502": (
        [server({"resources": {"requests": {"cpu": REMOVED, GPU: 1}}}), hpa(of_cpu())],
        [server(), hpa(of_cpu())],
    ),
    "RS6503": (
        [server(), hpa(of_pods("vllm_request_queue_depth", "4"))],
        [server(), hpa(of_pods("vllm_num_requests_waiting", "4"))],
    ),
    "RS6504": (
        [server(), hpa(of_pods("vllm_kv_cache_usage_perc", "80"))],
        [server(), hpa(of_pods("vllm_kv_cache_usage_perc", "800m"))],
    ),
    "RS6505": (
        [server(), hpa(of_pods("DCGM_FI_DEV_FB_USED", "60000"))],
        [server(), hpa(of_pods("vllm_num_requests_running", "20"))],
    ),
    "RS6506": ([server(), keda(f"avg({RUNNING})")], [server(), keda(f"sum({RUNNING})")]),
    "RS6507": (
        [server(), keda(f"sum({RUNNING}) / count(kube_pod_info)", trigger={"metricType": "Value"})],
        [server(), keda(f"sum({RUNNING})")],
    ),
    "RS6508": ([server(), keda(f"sum({RUNNING})", cooldownPeriod=60)], [server(), keda(f"sum({RUNNING})")]),
    "RS6509": (
        [server(), hpa(of_pods("vllm_num_requests_running", "20"), behavior=_up(30))],
        [server(), hpa(of_pods("vllm_num_requests_running", "20"), behavior=_up(300))],
    ),
    "RS6510": ([quota("2"), server(spec={"replicas": 3})], [quota("4"), server(spec={"replicas": 3})]),
    "RS6511": ([kserve(0, 1)], [kserve(1, 1)]),
    "RS6512": (
        [server(), keda(f"sum({WAITING})", minReplicaCount=0)],
        [server(), keda("sum(gateway_requests_in_flight)", minReplicaCount=0)],
    ),
    "RS6513": (
        [server(), keda("sum(gateway_queue)", minReplicaCount=0, maxReplicaCount=1)],
        [server(), keda("sum(gateway_queue)", minReplicaCount=0)],
    ),
    "RS6514": (
        [server(), keda("sum(gateway_queue)", minReplicaCount=0)],
        [server(), keda("sum(gateway_queue)", minReplicaCount=0, cooldownPeriod=900)],
    ),
    "RS6515": ([server(), hpa(of_cpu()), keda(f"sum({RUNNING})")], [server(), keda(f"sum({RUNNING})")]),
    "RS6516": (
        [server(args("--max-num-seqs", "16", "--max-model-len", "8192")), keda(f"sum({RUNNING})", "20")],
        [server(args("--max-num-seqs", "16", "--max-model-len", "8192")), keda(f"sum({RUNNING})", "12")],
    ),
    "RS6517": ([server(spec={"replicas": 5}), keda(f"sum({RUNNING})")], [server(), keda(f"sum({RUNNING})")]),
    "RS6518": ([server(), keda(f"sum({RUNNING})", minReplicaCount=4)], [server(), keda(f"sum({RUNNING})")]),
    "RS6519": (
        [server(), keda("sum(vllm:request_success_total)")],
        [server(), keda("sum(rate(vllm:request_success_total[2m]))")],
    ),
    "RS6520": ([server(), hpa(of_cpu(), target="proxy")], [server(), hpa(of_cpu())]),
    "RS6521": ([server(), hpa(_of_memory())], [server(), hpa(of_cpu())]),
    "RS6601": ([alert("DCGM_FI_DEV_FB_FREE < 1e9")], [alert("DCGM_FI_DEV_FB_FREE < 1000")]),
    "RS6602": (
        [alert("DCGM_FI_DEV_THERMAL_VIOLATION > 0")],
        [alert("rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m]) > 0"), alert("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL > 0")],
    ),
    "RS6603": ([alert("rate(DCGM_FI_DEV_GPU_TEMP[5m]) > 5")], [alert("delta(DCGM_FI_DEV_GPU_TEMP[5m]) > 5")]),
    "RS6604": ([alert("DCGM_FI_DEV_GPU_UTIL > 95")], [alert("DCGM_FI_DEV_GPU_UTIL < 5")]),
    "RS6605": (
        [alert("DCGM_FI_DEV_GPU_TEMP > 85")],
        [alert("DCGM_FI_DEV_GPU_TEMP > 85"), alert("DCGM_FI_DEV_XID_ERRORS > 0")],
    ),
    "RS6606": ([alert("vllm:num_request_waiting > 10")], [alert("vllm:num_requests_waiting > 10")]),
    "RS6607": (
        [shared(rename=True), server(gpus(1, "nvidia.com/gpu.shared")), hpa(of_pods("DCGM_FI_DEV_GPU_UTIL", "80"))],
        [server(), hpa(of_pods("DCGM_FI_DEV_GPU_UTIL", "80"))],
    ),
    "RS6608": ([server(), monitor("metrics")], [server(), monitor("http")]),
    "RS6609": (
        [triton(ports=[{"name": "http", "containerPort": 8000}, {"name": "metrics", "containerPort": 8003}])],
        [triton()],
    ),
    "RS6701": ([nim(authSecret=REMOVED)], [nim()]),
    "RS6702": ([nim(scale={"enabled": True, "hpa": {"maxReplicas": 3}})], [nim()]),
    "RS6703": ([profiled("default")], [profiled("a" * 64)]),
    "RS6704": ([cache("ReadWriteOnce"), nim(replicas=3)], [cache("ReadWriteMany"), nim(replicas=3)]),
    "RS6705": ([_nim_slice("1.8.0")], [_nim_slice("1.13.0")]),
    "RS6801": ([compute_class({"machineType": "g2-standard-4"})], [compute_class(L4_RULE)]),
    "RS6802": (
        [compute_class(L4_RULE, {**L4_RULE, "flexStart": {"enabled": True}}, whenUnsatisfiable="DoNotScaleUp")],
        [compute_class(L4_RULE, {**L4_RULE, "flexStart": {"enabled": True}})],
    ),
    "RS6803": ([compute_class({**L4_RULE, "spot": True})], [compute_class({**L4_RULE, "spot": True}, L4_RULE)]),
    "RS6804": ([node_pool(FAMILY, limits={GPU: REMOVED, "cpu": 1000})], [node_pool(FAMILY)]),
    "RS6805": (
        [_old_pool({"key": GPU, "effect": "NoSchedule", "operator": "Exists"})],
        [_old_pool({"key": GPU, "effect": "NoSchedule"})],
    ),
    "RS6806": ([node_pool({"karpenter.k8s.aws/instance-family": ["g4", "g5"]})], [node_pool(FAMILY)]),
    "RS6807": ([node_pool({"karpenter.k8s.aws/instance-family": ["p3", "g5"]})], [node_pool(FAMILY)]),
    "RS6808": ([node_pool(FAMILY, disruption={"consolidateAfter": "30s"})], [node_pool(FAMILY)]),
    "RS6809": ([node_pool(FAMILY, disruption={"consolidateAfter": "Never"})], [node_pool(FAMILY)]),
    "RS6810": ([node_pool({**FAMILY, "karpenter.sh/capacity-type": ["spot", "on-demand"]})], [node_pool(FAMILY)]),
    "RS6811": ([compute_class(_reserved(["us-central1-a"]))], [compute_class(_reserved([]))]),
    "RS6812": ([compute_class(L4_RULE, version="autoscaling.gke.io/v1")], [compute_class(L4_RULE)]),
    "RS6813": (
        [node_pool({**FAMILY, "topology.kubernetes.io/zone": ["us-east-1a"]})],
        [node_pool({**FAMILY, "topology.kubernetes.io/zone": ["us-east-1a", "us-east-1b"]})],
    ),
    "RS6901": ([server({"image": "vllm/vllm-openai:latest"})], [server()]),
    "RS6902": ([server({"securityContext": {"privileged": True}})], [server()]),
    "RS6903": ([server(), balancer()], [server(args("--api-key", "$(KEY)", "--max-model-len", "8192")), balancer()]),
    "RS6904": ([server(pod={"enableServiceLinks": REMOVED}), service("vllm")], [server(), service("vllm")]),
    "RS6905": ([server(args(model="Qwen/Qwen3-0.6B"), on(L40S))], [server(pod=on(L40S))]),
    "RS6906": (
        [
            server(
                {**args("-tp", "8", "--max-model-len", "8192", model=LLAMA_70B), **gpus(8), **SHM},
                {**on(A100), **WITH_SHM},
            )
        ],
        [wide(4)],
    ),
    "RS6907": (
        [server(pod={"nodeSelector": {NODE: "g5.xlarge"}})],
        [server({"resources": {"limits": {"memory": "12Gi"}}}, {"nodeSelector": {NODE: "g5.xlarge"}})],
    ),
    "RS6908": (
        [server(pod={"nodeSelector": {NODE: "g5.xlarge"}})],
        [server({"resources": {"requests": {"cpu": "1"}}}, {"nodeSelector": {NODE: "g5.xlarge"}})],
    ),
    "RS6909": ([server(args("--trust-remote-code", "--max-model-len", "8192"))], [server()]),
    "RS6910": ([server(env("HF_TOKEN", "hf_abcdefghijklmnop"))], [server(env("HF_HOME", "/cache/huggingface"))]),
}
