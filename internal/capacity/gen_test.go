package capacity

import (
	"slices"

	"pgregory.net/rapid"
)

var (
	regions = []string{"", "us", "eu"}
	zones   = []string{"", "a", "b"}
	names   = []string{"", "x", "y"}
	models  = []string{"llama", "mixtral", "phi", "qwen"}
)

// amountGen is mostly small and now and then near the limit, so that sums reach it.
func amountGen(t *rapid.T, label string) int64 {
	if rapid.IntRange(0, 9).Draw(t, label+" huge") == 0 {
		return rapid.Int64Range(MaxAmount-2, MaxAmount).Draw(t, label)
	}
	return rapid.Int64Range(0, 1000).Draw(t, label)
}

func drawSubset(t *rapid.T, from []string, label string) []string {
	out := rapid.SliceOfDistinct(rapid.SampledFrom(from), rapid.ID).Draw(t, label)
	slices.Sort(out)
	return out
}

func genPrefixes(t *rapid.T) []PrefixEntry {
	out := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) PrefixEntry {
		return PrefixEntry{Hash: uint64(rapid.IntRange(0, 60).Draw(t, "hash")), Tokens: rapid.Int64Range(0, 8).Draw(t, "tokens")}
	}), 0, MaxPrefixes, func(p PrefixEntry) uint64 { return p.Hash }).Draw(t, "prefixes")
	slices.SortFunc(out, comparePrefix)
	return out
}

func genModel(t *rapid.T, name string) *ModelCapacity {
	m := genPool(t, name)
	m.Prefixes = genPrefixes(t)
	if rapid.IntRange(0, 3).Draw(t, "pooled") == 0 {
		for _, p := range drawSubset(t, []string{"gold", "iron", "tin"}, "pools") {
			m.Pools = append(m.Pools, genPool(t, p))
		}
	}
	return m
}

func genPool(t *rapid.T, name string) *ModelCapacity {
	m := &ModelCapacity{Name: name}
	for _, n := range m.amountFields() {
		*n = amountGen(t, "amount")
	}
	m.WarmMillis, m.ColdMillis = amountGen(t, "warm millis"), amountGen(t, "cold millis")
	m.Ready, m.KVFree, m.SlotsFree = min(m.Ready, m.Total), min(m.KVFree, m.KVTotal), min(m.SlotsFree, m.SlotsTotal)
	for _, h := range drawSubset(t, []string{"A100", "H100", "L4"}, "hardware") {
		m.Hardware = append(m.Hardware, HardwareRates{Name: h, Ready: amountGen(t, "ready"), PrefillRate: amountGen(t, "prefill"), DecodeRate: amountGen(t, "decode")})
	}
	return m
}

func genDemand(t *rapid.T) []CellDemand {
	var out []CellDemand
	for _, s := range drawSubset(t, []string{"chat.example", "embed.example"}, "services") {
		for _, c := range drawSubset(t, []string{"c1", "c2", "c3"}, "cells") {
			out = append(out, CellDemand{Service: s, Model: "llama", Cell: c, TokensPerSec: amountGen(t, "tps"), RequestsPerSecMilli: amountGen(t, "rps")})
		}
	}
	return out
}

func genRTTs(t *rapid.T) []CellRTT {
	var out []CellRTT
	for _, c := range drawSubset(t, []string{"c1", "c2", "c3"}, "measured cells") {
		out = append(out, CellRTT{Cell: c, Samples: amountGen(t, "samples"), TotalMicros: amountGen(t, "micros"), AgeSec: amountGen(t, "age")})
	}
	return out
}

func genOutcomes(t *rapid.T) []OutcomeCounts {
	var out []OutcomeCounts
	for _, stage := range []uint64{0, 7} {
		for _, m := range drawSubset(t, models, "served models") {
			o := OutcomeCounts{Stage: stage, Service: "chat.", Model: m, Requests: amountGen(t, "requests"), Failures: amountGen(t, "faults"), Refused: amountGen(t, "refused")}
			for range 3 {
				o.TTFT[rapid.IntRange(0, TTFTBuckets-1).Draw(t, "bucket")] = amountGen(t, "ttft")
			}
			out = append(out, o)
		}
	}
	return out
}

func genNetworks(t *rapid.T) []ClientNetwork {
	var out []ClientNetwork
	for _, c := range drawSubset(t, []string{"c1", "c2"}, "cells of networks") {
		for _, n := range rapid.SliceOfDistinct(rapid.SampledFrom([]uint64{0, 7, 1<<24 - 1, 1 << 48, 1<<49 - 1}), rapid.ID).Draw(t, "networks") {
			out = append(out, ClientNetwork{Service: "chat.example", Cell: c, Number: n, TokensPerSec: amountGen(t, "tps")})
		}
	}
	slices.SortFunc(out, compareNetwork)
	return out
}

func genTenantUsages(t *rapid.T) []TenantUsage {
	var out []TenantUsage
	for _, n := range drawSubset(t, []string{"", "acme", "zeta"}, "tenants") {
		u := TenantUsage{Tenant: n}
		for _, a := range u.amountFields() {
			*a = amountGen(t, "use")
		}
		u.Day = rapid.Int64Range(0, 2).Draw(t, "day")
		out = append(out, u)
	}
	return out
}

func genHeldLeases(t *rapid.T) HeldLeases {
	return HeldLeases{Term: rapid.Uint64Range(0, 2).Draw(t, "term"), Number: 3, Boot: 4, Mark: rapid.Uint64().Draw(t, "mark"), AgeMillis: amountGen(t, "age")}
}

// genSummary draws lawful statements, the identity among them.
func genSummary(t *rapid.T) Summary {
	if rapid.IntRange(0, 9).Draw(t, "zero") == 0 {
		return Summary{}
	}
	s := Summary{
		Path: Path{
			Region: rapid.SampledFrom(regions).Draw(t, "region"), Zone: rapid.SampledFrom(zones).Draw(t, "zone"),
			Instance: rapid.SampledFrom(names).Draw(t, "instance"),
		},
		Boot: rapid.Uint64Range(0, 3).Draw(t, "boot"), Seq: rapid.Uint64Range(0, 5).Draw(t, "seq"),
		Endpoint: rapid.SampledFrom([]string{"", "127.0.0.1:80"}).Draw(t, "endpoint"),
		Draining: rapid.Bool().Draw(t, "draining"), Demand: genDemand(t), RTTs: genRTTs(t), Outcomes: genOutcomes(t), Networks: genNetworks(t),
		TenantUsages: genTenantUsages(t), HeldLeases: genHeldLeases(t),
	}
	for _, name := range drawSubset(t, models, "models") {
		s.Models = append(s.Models, genModel(t, name))
	}
	for _, p := range drawSubset(t, []string{"g1", "g2", "g3"}, "parents") {
		s.Acks = append(s.Acks, LedgerAck{Parent: p, Boot: rapid.Uint64Range(0, 2).Draw(t, "ack boot"), Ticket: rapid.Uint64Range(0, 9).Draw(t, "ticket")})
	}
	return s
}
