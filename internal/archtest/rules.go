// Package archtest checks the structure of the module by test: which top-level folders exist, which packages may import
// which, what a pure package may not use, and that names and texts stay readable. Every failure gives the reason for
// the rule.
//
// The import rules are in rules.go. The other bounds are ratchets (ratchet.go, figures.go, words.go): the source
// exceeds some of them today, so testdata holds the figures that are allowed for now, and these may only shrink. Lower
// them with
//
//	go test ./internal/archtest -update
//
// which refuses to raise a line. A baseline file that is deleted first is written with the present figures.
//
// The words that are not used, each with its replacement, are in bannedwords.txt.
//
// All checks read syntax only. Production code does not import this package.
package archtest

import "strings"

const module = "github.com/spillway-lb/spillway"

// topLevelFolders are the folders a newcomer sees. Files whose name starts with a dot are not counted.
var topLevelFolders = []string{"cmd", "global", "regional", "local", "consensus", "geo", "deploy", "chaos", "internal"}

// purePackages packages decide; they are plain single-threaded Go over values.
var purePackages = []string{
	"global/liveness", "global/snapshot", "global/planinput", "global/steer", "global/rollout", "global/quota", "regional/tenant", "regional/routing", "regional/demand", "local/queue", "local/perfmodel", "local/blockhash", "local/prefix", "local/prefix/kvmirror", "local/inflight", "local/pick", "local/health", "local/batch", "local/modelload", "local/autoscale", "local/sharding", "local/sched", "local/engine/report",
	"geo", "internal/backoff", "internal/capacity", "internal/decision", "internal/spec", "internal/modelroute", "internal/explain", "internal/grpcmeta", "internal/openai", "internal/paths", "internal/poison", "internal/resume", "internal/ticket", "internal/config/strict",
	"chaos/baseline",
}

// plainData are generated message types: data without behaviour, which pure codecs may use.
var plainData = []string{"internal/capacity/capacitypb"}

// tierFolders meet as bytes only.
var tierFolders = []string{"global", "regional", "local"}

// chaosFolders hold what breaks things on purpose, and what only that may import.
var chaosFolders = []string{"chaos", "internal/uplink/abusetest"}

// shellImports are what a pure package may not import, with the reason.
var shellImports = map[string]string{
	"net":          "a decider does no I/O; net/netip is allowed, for an address is a value",
	"net/http":     "a decider takes values, not requests or responses of net/http",
	"os":           "a decider does no I/O",
	"os/exec":      "a decider does no I/O",
	"syscall":      "a decider does no I/O",
	"log":          "a decider returns a verdict; the edge logs it once",
	"log/slog":     "a decider returns a verdict; the edge logs it once",
	"sync":         "a decider is single-threaded; its shell holds the lock or swaps the snapshot",
	"sync/atomic":  "a decider is single-threaded; its shell holds the lock or swaps the snapshot",
	"math/rand":    "chance is an argument (*rand.Rand of math/rand/v2), or the simulator could not replay a decision",
	"crypto/rand":  "chance is an argument, or the simulator could not replay a decision",
	"context":      "a decider does not wait, so there is nothing to cancel",
	"runtime":      "a decider does not know the machine it runs on",
	"time/tzdata":  "a decider does not know where it runs",
	"unsafe":       "a decider must be readable; speed comes from its data layout",
	"expvar":       "a decider keeps no global state",
	"database/sql": "a decider does no I/O",
}

// clockCalls are the functions of package time that read or wait for a clock.
var clockCalls = map[string]bool{
	"Now": true, "Sleep": true, "After": true, "AfterFunc": true, "Tick": true,
	"NewTimer": true, "NewTicker": true, "Since": true, "Until": true,
}

// seedlessRand are what a pure package may use of math/rand/v2: making a generator from a given seed, and types.
var seedlessRand = map[string]bool{
	"Rand": true, "New": true, "NewPCG": true, "NewChaCha8": true, "Source": true, "PCG": true, "ChaCha8": true, "Zipf": true, "NewZipf": true,
}

// importRule forbids imports from one part of the tree to another.
type importRule struct {
	from   func(pkg string) bool
	to     func(imp string) bool
	reason string
}

func inFolder(root string) func(string) bool {
	return func(p string) bool { return p == root || strings.HasPrefix(p, root+"/") }
}

func anyOf(roots ...string) func(string) bool {
	return func(p string) bool {
		for _, r := range roots {
			if inFolder(r)(p) {
				return true
			}
		}
		return false
	}
}

func notMatching(f func(string) bool) func(string) bool { return func(p string) bool { return !f(p) } }

func isExactly(name string) func(string) bool { return func(p string) bool { return p == name } }

// importRules are checked against every non-test import inside the module; paths are relative to it. Imports from outside
// keep their full path.
func importRules() []importRule {
	rs := []importRule{
		{
			anyOf("global", "regional", "local", "consensus", "geo", "internal"), inFolder("chaos"),
			"production never imports chaos: what breaks things must not be able to run by accident",
		},
		{notMatching(inFolder("chaos")), inFolder("internal/uplink/abusetest"), "what misbehaves on purpose is for benches alone: no tier may be able to run it"},
		{notMatching(inFolder("cmd")), inFolder("cmd"), "cmd only wires and prints: nothing can depend on it"},
		{inFolder("consensus"), inFolder("internal/capacity"), "consensus never holds telemetry: capacity is soft state and stays out of Raft"},
		{inFolder("consensus"), inFolder("internal/uplink"), "consensus knows nothing of the tiers"},
		{inFolder("consensus"), anyOf(tierFolders...), "consensus knows nothing of the tiers"},
		{inFolder("geo"), anyOf("global", "regional", "local", "consensus"), "geo answers where an address is, for every tier alike"},
		{inFolder("internal"), anyOf("global", "regional", "local", "consensus", "geo"), "internal packages stand under the tiers, never on them"},
		{
			notMatching(inFolder("global/dns")), isExactly("github.com/miekg/dns"),
			"the DNS library is frozen upstream: global/dns is the only place that imports it, so that a move touches one package",
		},
		{anyOf("local/prefix", "local/blockhash"), anyOf("local/pick", "local/inflight"), "what is cached does not depend on what is in flight: the choice reads both"},
		{inFolder("local/perfmodel"), anyOf("local/pick", "local/inflight", "local/prefix"), "learned rates do not depend on what is in flight or cached: the ledger and the choice read them"},
		{notMatching(inFolder("local/discover/kube")), inFolder("k8s.io/client-go"), "client-go stays behind local/discover/kube: no other part of Spillway needs an API server"},
		{notMatching(anyOf("consensus")), isExactly("github.com/hashicorp/raft"), "Raft stays behind consensus"},
		{notMatching(anyOf("internal/uplink", "internal/httpedge/h3")), isExactly("github.com/quic-go/quic-go"), "QUIC stays behind internal/uplink and internal/httpedge/h3"},
		{
			notMatching(inFolder("internal/tools")), isExactly("github.com/hashicorp/raft-boltdb"),
			"the bare raft-boltdb rests on a dead store that crashes under -race: use raft-boltdb/v2",
		},
	}
	for _, a := range tierFolders {
		for _, b := range tierFolders {
			if a != b {
				rs = append(rs, importRule{inFolder(a), inFolder(b), "tiers never import each other: they meet as bytes (DNS, HTTP, QUIC)"})
			}
		}
	}
	return rs
}
