// Package sim runs a fleet in virtual time: workers of chaos/gpu, and above them the local tier, gateways and global
// nodes with the decision code of production, on one event heap. It starts no goroutine, opens no socket and reads no
// clock: the same scenario with the same seed has the same outcome to the last byte, on any machine.
//
// # Parts
//
// A simulation is an eventLoop and parts that handle its events, each with its own state: the topology lists what exists,
// network computes delays and losses, requestReader derives what deciders see of a request, requestTable starts and ends
// requests, workerTier runs the engines, zoneTier, gatewayTier and globalTier are the tiers of Spillway, baselineTier is what
// replaces them for a baseline, faultInjector breaks parts, and recorder measures. connectParts (run.go) tells each part which
// others it uses.
//
// # Production code and mirrored code
//
// A zone is a sched.Scheduler, as in an Agent: queues, views, ledger, prefix index, learned rates, breakers and retry
// budget. What an Agent does around it is here instead (zonescheduler.go, zonetier.go): scrapes once a second
// with a tenth of jitter, worker checks every 250 ms, a pump every 10 ms while requests wait, and the one retry of a
// request whose worker failed before its first byte. Prompts are pieces and not texts, so blocks are hashed from
// pieces (gpu.HashVariableBlocks) at the offsets where blockhash.AppendBlockHashes cuts texts of four bytes per token;
// equal prefixes have equal hashes, which is all that the index needs.
//
// Where there are gateways, each is a gatewayModel: the Router of regional/routing, the Enforcer of regional/tenant and the
// Tracker of regional/demand that a real gateway has. The global tier is a globalCore (snapshots, votes, planner input, answers). The
// simulator models the links between them: summaries each 250 ms, or 100 ms while something changes, damped as by the
// uplink's child, delayed by half a round trip or lost; directives once a second; plans in force 100 ms after they were
// made; resolvers that cache answers for their TTL. gatewayflow.go follows the gateway's request loop (regional/requestloop.go):
// a request that a zone or a peer refused is tried once elsewhere, or routed again in its own region.
//
// # Baselines
//
// If a scenario's Policy is a baseline, one balancer of chaos/baseline per region replaces all tiers of Spillway: it
// probes its replicas and its peers every 100 ms, or as often as the scenario scrapes workers, and has no other
// information.
//
// Each tier may have several instances. Those of a zone divide its workers by local/sharding, and gateways report
// which of them are live; those of a region have separate ledgers, receive the summaries of all its zones, and are
// chosen by clients from the addresses in DNS answers; the global nodes are in different regions and agree on plans
// while a majority is connected. An instance that dies loses its state and its streams: a zone's streams are resumed
// elsewhere by their gateway, as far as production would; a gateway's streams are cut, and its other clients send
// again.
//
// # Not simulated
//
// Hedging, merged embeddings, cache events (the prefix index estimates), cold models and adapters, and the engine's
// part of an answer that its gateway resumes although the worker itself failed: such answers count as cut. Delta
// encoding of summaries: what arrives is complete. Computation of a tier takes no time, unless the network's round
// trips include it; nor does a DNS query. Round-trip measurement of peers: it is done once, exactly. Elections take
// time only with SteeringConfig.ElectionTime, and restarted workers load their model only with Fault.Store.
//
// The histogram (Distribution) is the package's own: adding a value takes 10 ns, where Prometheus's with buckets as fine
// takes 80, can neither be added to another nor stored, and yields no quantiles.
//
// The package makes no routing decision, and gives a decider no information that it could not have at that moment: a
// scheduler knows a worker by scrapes and by its own answers.
package sim
