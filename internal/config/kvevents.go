package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// maxKVRanks bounds the data-parallel ranks of one worker.
const maxKVRanks = 64

// FindKVProblems checks the keys of the entry about cache events. Paths are relative to the entry.
func (w *WorkerEntry) FindKVProblems() []strict.Problem {
	var out []strict.Problem
	bad := func(path, reason, hint string) {
		out = append(out, strict.Problem{Path: path, Reason: reason, Hint: hint})
	}
	for key, list := range map[string][]string{"kv_events": w.KVEvents, "kv_replay": w.KVReplay} {
		for i, a := range list {
			at := fmt.Sprintf("%s[%d]", key, i)
			if reason, hint := kvAddressProblem(a); reason != "" {
				bad(at, reason, hint)
			} else if slices.Index(list, a) < i {
				bad(at, fmt.Sprintf("duplicate address %q", a), "write one address for each data-parallel rank")
			}
		}
	}
	switch {
	case len(w.KVEvents) > maxKVRanks:
		bad("kv_events", fmt.Sprintf("%d addresses", len(w.KVEvents)), fmt.Sprintf("a worker has %d data-parallel ranks at most: list each of its servers as a worker", maxKVRanks))
	case len(w.KVReplay) > 0 && len(w.KVReplay) != len(w.KVEvents):
		bad("kv_replay", fmt.Sprintf("kv_replay has %d addresses and kv_events %d", len(w.KVReplay), len(w.KVEvents)), "write one for each of kv_events, in the same order, or leave kv_replay out")
	}
	slices.SortFunc(out, func(a, b strict.Problem) int { return slices.Compare([]byte(a.Path), []byte(b.Path)) })
	return out
}

// kvAddressProblem refuses what is not a ZeroMQ address of another machine: other transports, and link-local
// addresses, where clouds serve their metadata.
func kvAddressProblem(s string) (reason, hint string) {
	const form = "write tcp://host:port, such as tcp://10.0.0.7:5557, as the engine's --kv-events-config has it"
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "tcp" || u.Hostname() == "" || u.Hostname() == "*" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Sprintf("%q is not an address of cache events", s), form
	}
	if n, err := strconv.Atoi(u.Port()); err != nil || n < 1 || n > 65535 {
		return fmt.Sprintf("%q has no port", s), form
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && (a.Unmap().IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) {
		return fmt.Sprintf("%s is not an allowed worker address", a), "link-local, multicast and unspecified addresses are refused"
	}
	return "", ""
}

// checkKVEvents checks the keys of a simulated worker.
func (c *SimulatedWorker) checkKVEvents(k *configChecker) {
	k.checkListenAddr("kv_events", c.KVEvents, "tcp", false)
	k.checkListenAddr("kv_replay", c.KVReplay, "tcp", false)
	if c.KVReplay != "" && c.KVEvents == "" {
		k.addProblem("$.kv_replay", "kv_replay is set and kv_events is not", "write kv_events: 127.0.0.1:5557, or leave kv_replay out")
	}
	if c.KVForm != "map" && c.KVForm != "array" {
		k.addProblem("$.kv_form", fmt.Sprintf("unknown form %q", c.KVForm), strict.SuggestName(c.KVForm, []string{"map", "array"}, "forms"))
	}
}
