"""What decides at the ticks of a cluster simulation: autoscalers, nodes, cold starts, faults, and bounds.

Plain data and pure functions without an event loop. Times are seconds of simulated time. A loop uses them so:

1. At multiples of a policy's `period_s` it shows the policy a `ModelView` and takes the `Decision`; where the size
   falls, `replicas.victims` says who goes.
2. New replicas are Pending pods; `nodes.bind` puts them on nodes with room, `nodes.scan`, at `nodes.next_scan_s`, asks
   for more nodes (`ColdStart.node_s`) and takes unneeded ones away.
3. From the bind on a pod takes `ColdStart.draw(rng, skip=ON_NODE)`, with PULL where the image is on the node: Pending
   for `until_running_s`, then loading, then ready.
4. `faults` are drawn beforehand per pool and at the birth of each node; at `at_s` of a fault `struck` and `affected`
   say which replicas drain and stop.
5. `bounds` gives the GPU-hours to compare with.
"""
