// Package sim runs a fleet in virtual time: workers of chaos/gpu, and before them the floors of the local tier, gateways
// and global nodes with the very code that decides in production, on one heap of events. It starts no goroutine, opens no
// socket and reads no clock: the same scenario with the same seed has the same outcome to the last byte, on any machine.
//
// # What is production's own, and what is mirrored
//
// A zone is local.Lab: the floor of an Agent itself, with its queue, views, ledger, prefix index, learners, breakers and
// retry budget. What stands around a floor in an Agent is here instead: scrapes once a second with a tenth of jitter,
// patrols every 250 ms, a pump every 10 ms while somebody waits, and the one retry of a request whose worker broke before
// its first byte. Prompts are pieces and not texts, so that blocks are hashed from pieces (gpu.Cut) at the places where
// pick.Blocks cuts texts of four bytes to the token; equal beginnings have equal hashes, and that is all that is asked of
// them.
//
// Above zones, where there are gateways, a region is regional.Lab (choice, ledger, spills, limits, sessions, view) and the
// global tier global.Lab (views, planner, answers). Here is what carries words between them: statements each 250 ms, or 100 ms
// while something moves, steadied as the uplink's child does it, half a round trip late or lost; directives once a second;
// plans in force 100 ms after they were made; resolvers that keep answers for their TTL. What a gateway does about a zone or a
// peer that refuses is mirrored in gate.go after regional/dispatch.go: one try more elsewhere, or back home.
//
// # Rivals
//
// Where a scenario's Policy is a rival's, one balancer of chaos/rival stands in each region in the place of all our tiers: it
// probes its replicas and its peers each 100 ms, or as often as the scenario has workers looked at, and knows no more.
//
// Each tier may have several instances. Those of a zone divide its workers by local/owner, and gateways say who of them is live; those
// of a region each have their ledger, hear all of its zones, and are chosen by clients from what DNS answers list; the global nodes
// stand in regions and agree on plans while a majority meets. What dies takes with it what it knew and passed on: a zone's streams are
// gone on with elsewhere by their gateway, as far as production would; a gateway's are cut, and its other clients ask anew.
//
// # What is left out
//
// Hedging, merged embeddings, cache events (the prefix index guesses), cold models and adapters, and what the engine has of a
// worker's answers that its gateway goes on with although the worker itself broke: they count as cut. Deltas of statements:
// what arrives is what was said. What a tier computes takes no time, unless the network's round trips say it; and a question
// to DNS none either. A peer's probes of its round trips: they are measured once, and right. Elections take time only where
// Steering.Election says so, and workers that come back load their model only where Fault.Store does.
//
// It never decides where a request goes, and it never looks at anything on behalf of a decider that the decider could not
// have seen at that moment: what a floor knows of a worker came by a scrape or by its own answers.
package sim
