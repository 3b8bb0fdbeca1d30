package archtest

import "strings"

const module = "github.com/spillway-lb/spillway"

// topLevel are the folders a newcomer sees. Files whose name starts with a dot are not counted.
var topLevel = []string{"cmd", "global", "regional", "local", "consensus", "geo", "deploy", "chaos", "internal"}

// pure packages decide; they are plain single-threaded Go over values.
var pure = []string{
	"global/steer", "global/stage", "global/lease", "regional/tenant", "regional/zone", "local/queue", "local/pick", "local/health", "local/batch", "local/warm", "local/scale", "local/owner",
	"internal/capacity", "internal/spec", "internal/route", "internal/explain", "internal/grpcwire", "internal/openai", "internal/paths", "internal/poison", "internal/resume", "internal/ticket", "internal/config/strict",
	"chaos/rival",
}

// plainData are generated message types: data without behaviour, which pure codecs may use.
var plainData = []string{"internal/capacity/capacitypb"}

// tiers meet as bytes only.
var tiers = []string{"global", "regional", "local"}

// shellImports are what a pure package may not import, with the reason.
var shellImports = map[string]string{
	"net":          "a decider does no I/O; net/netip is allowed, for an address is a value",
	"net/http":     "a decider does no I/O",
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

// rule forbids imports from one part of the tree to another.
type rule struct {
	from   func(pkg string) bool
	to     func(imp string) bool
	reason string
}

func in(root string) func(string) bool {
	return func(p string) bool { return p == root || strings.HasPrefix(p, root+"/") }
}

func anyOf(roots ...string) func(string) bool {
	return func(p string) bool {
		for _, r := range roots {
			if in(r)(p) {
				return true
			}
		}
		return false
	}
}

func not(f func(string) bool) func(string) bool { return func(p string) bool { return !f(p) } }

func exactly(name string) func(string) bool { return func(p string) bool { return p == name } }

// rules are checked against every non-test import inside the module; paths are relative to it. Imports from outside
// keep their full path.
func rules() []rule {
	rs := []rule{
		{
			anyOf("global", "regional", "local", "consensus", "geo", "internal"), in("chaos"),
			"production never imports chaos: what breaks things must not be able to run by accident",
		},
		{not(in("chaos")), in("internal/uplink/rogue"), "what misbehaves on purpose is for benches alone: no tier may be able to run it"},
		{not(in("cmd")), in("cmd"), "cmd only wires and prints: nothing can depend on it"},
		{in("consensus"), in("internal/capacity"), "consensus never holds telemetry: capacity is soft state and stays out of Raft"},
		{in("consensus"), in("internal/uplink"), "consensus knows nothing of the tiers"},
		{in("consensus"), anyOf(tiers...), "consensus knows nothing of the tiers"},
		{in("geo"), anyOf("global", "regional", "local", "consensus"), "geo answers where an address is, for every tier alike"},
		{in("internal"), anyOf("global", "regional", "local", "consensus", "geo"), "internal packages stand under the tiers, never on them"},
		{
			not(in("global/dns")), exactly("github.com/miekg/dns"),
			"the DNS library is frozen upstream: global/dns is the only place that imports it, so that a move touches one package",
		},
		{not(anyOf("consensus")), exactly("github.com/hashicorp/raft"), "Raft stays behind consensus"},
		{not(anyOf("internal/uplink", "internal/h3")), exactly("github.com/quic-go/quic-go"), "QUIC stays behind internal/uplink and internal/h3"},
		{
			not(in("internal/tools")), exactly("github.com/hashicorp/raft-boltdb"),
			"the bare raft-boltdb rests on a dead store that crashes under -race: use raft-boltdb/v2",
		},
	}
	for _, a := range tiers {
		for _, b := range tiers {
			if a != b {
				rs = append(rs, rule{in(a), in(b), "tiers never import each other: they meet as bytes (DNS, HTTP, QUIC)"})
			}
		}
	}
	return rs
}
