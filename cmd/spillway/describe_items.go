package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

func listRegionNames(f *fleetFacts) []string {
	return listItemNames(f.status.Regions, func(r *admin.RegionStatus) string { return r.Name })
}

func listZoneNames(f *fleetFacts) []string {
	return listItemNames(listZones(f.status), (*zoneItem).path)
}

func listWorkerNames(f *fleetFacts) []string {
	return listItemNames(listWorkers(f.status), (*workerItem).path)
}

func listModelItemNames(f *fleetFacts) []string {
	return listItemNames(listModels(f.status, f.spec), func(m *modelItem) string { return m.Name })
}

func listTenantNames(f *fleetFacts) []string {
	if f.spec == nil {
		return nil
	}
	return listItemNames(f.spec.Tenants, func(t *spec.Tenant) string { return t.Name })
}

// formatReportState returns the state of reports with the effect that it has.
func formatReportState(state string, ageMS int64) string {
	text := formatState(state, false)
	switch state {
	case admin.StateUnreachable:
		return text + ": the last report is " + formatAge(ageMS) + " old; no requests are sent there while others are available, and its figures are not shown"
	case admin.StateStale:
		return text + ": the last report is " + formatAge(ageMS) + " old; the figures below are as last reported"
	case admin.StateUnknown:
		return text + ": no report has arrived since this node started"
	}
	return text + ", last report " + formatAge(ageMS) + " ago"
}

// listUnreadyWorkers lists the workers that accept no requests, with the cause.
func listUnreadyWorkers(workers []workerItem) (lines []string) {
	for i := range workers {
		if w := &workers[i]; w.State != admin.StateReady || !w.isCurrent() {
			lines = append(lines, w.path()+": "+w.stateText())
		}
	}
	return lines
}

// selectWorkers returns the workers of a path.
func selectWorkers(f *fleetFacts, path string) []workerItem {
	return slices.DeleteFunc(listWorkers(f.status), func(w workerItem) bool { return !isSameOrWithin(w.path(), path) })
}

func isCurrentState(state string) bool {
	return state != admin.StateUnreachable && state != admin.StateUnknown
}

func describeRegion(w io.Writer, f *fleetFacts, name string) bool {
	i := slices.IndexFunc(f.status.Regions, func(r admin.RegionStatus) bool { return r.Name == name })
	if i < 0 {
		return false
	}
	r := &f.status.Regions[i]
	writeFact(w, "Region", r.Name)
	writeFact(w, "State", formatReportState(r.State, r.AgeMS))
	writeFact(w, "Health", formatHealth(r.State, r.Models))
	if r.Draining {
		writeFact(w, "Draining", "yes: new requests go to other regions")
	}
	writeFact(w, "Spec", formatVersion(r.SpecVersion))
	writeFact(w, "Note", r.Note)
	if f.spec != nil {
		if d := f.spec.FindRegion(name); d != nil {
			writeFact(w, "Location", fmt.Sprintf("%s (%.2f, %.2f)", dashIfEmpty(d.Place.City), d.Place.Lat, d.Place.Lon))
			writeFact(w, "Residency", strings.Join(d.Residency, ", "))
			writeFact(w, "Max share", formatPercent(d.MaxShare)+" of the measured capacity is filled")
		}
	}
	var gateways, zones []string
	for k := range r.Gateways {
		g := &r.Gateways[k]
		gateways = append(gateways, fmt.Sprintf("%s  %s  %s in flight  %s", g.Name, formatState(g.State, false), formatCount(g.InFlight), g.URL))
	}
	for k := range r.Zones {
		z := &r.Zones[k]
		zones = append(zones, fmt.Sprintf("%s (%s)  %s  %s  %d workers", z.Name, dashIfEmpty(z.Instance), formatState(z.State, z.Draining), formatHealth(z.State, z.Models), len(z.Workers)))
	}
	writeSection(w, "Gateways", gateways)
	writeSection(w, "Zones", zones)
	if isCurrentState(r.State) {
		writeModelTable(w, r.Models)
	}
	writeSection(w, "Workers not ready", listUnreadyWorkers(selectWorkers(f, name)))
	writeDrains(w, f, name)
	writeRegionPlan(w, f, name)
	writeLastChanges(w, f, changesOf(name))
	return true
}

// writeRegionPlan writes what the plan in force assigns to a region, and why the plan was made.
func writeRegionPlan(w io.Writer, f *fleetFacts, region string) {
	if f.plan == nil {
		return
	}
	lines := []string{fmt.Sprintf("plan %d, made %s ago: %s", f.plan.Epoch, formatAge(f.plan.AgeMS), dashIfEmpty(f.plan.Reason))}
	if slices.Contains(f.plan.Without, region) {
		lines = append(lines, "the plan leaves the region out: it was drained or unreachable")
	}
	for i := range f.plan.Services {
		s := &f.plan.Services[i]
		for k := range s.Regions {
			r := &s.Regions[k]
			if r.Name != region {
				continue
			}
			line := fmt.Sprintf("%s: %.1f of %d client areas, wait %s, overload cost %s", s.Name, r.Cells, s.Cells, formatSeconds(r.Wait), formatSeconds(r.Price))
			if r.Ramp > 0 {
				line += ", ramping up: " + formatPercent(r.Ramp) + " of its traffic"
			}
			lines = append(lines, line)
		}
	}
	writeSection(w, "Plan", lines)
}

func describeZone(w io.Writer, f *fleetFacts, path string) bool {
	found := false
	for _, z := range listZones(f.status) {
		if z.path() != path {
			continue
		}
		if found {
			fmt.Fprintln(w)
		}
		found = true
		writeFact(w, "Zone", path)
		writeFact(w, "Instance", z.Instance)
		writeFact(w, "State", formatReportState(z.State, z.AgeMS))
		writeFact(w, "Health", formatHealth(z.State, z.Models))
		if z.Draining {
			writeFact(w, "Draining", "yes: new requests go to other zones")
		}
		writeFact(w, "Endpoint", z.Endpoint)
		writeFact(w, "Note", z.Note)
		writeFact(w, "Workers", fmt.Sprint(len(z.Workers)))
		if isCurrentState(z.State) {
			writeModelTable(w, z.Models)
		}
	}
	if !found {
		return false
	}
	writeSection(w, "Workers not ready", listUnreadyWorkers(selectWorkers(f, path)))
	writeDrains(w, f, path)
	writeLastChanges(w, f, changesOf(path))
	return true
}

func describeWorker(w io.Writer, f *fleetFacts, path string) bool {
	all := listWorkers(f.status)
	i := slices.IndexFunc(all, func(x workerItem) bool { return x.path() == path })
	if i < 0 {
		return false
	}
	x := &all[i]
	writeFact(w, "Worker", path)
	writeFact(w, "State", x.stateText())
	writeFact(w, "Last error", x.LastError)
	if x.Attempts > 0 {
		writeFact(w, "Failing", fmt.Sprintf("%s since %s", formatPlural(x.Attempts, "attempt"), x.Since.UTC().Format(time.RFC3339)))
	}
	writeFact(w, "URL", x.URL)
	writeFact(w, "GPU", x.GPU)
	writeFact(w, "Engine", x.Engine)
	writeFact(w, "Source", x.Source)
	writeFact(w, "Instance", x.Instance)
	var models []string
	for _, m := range x.Models {
		state := x.ModelStates[m]
		if state == "" {
			state = "loaded"
		}
		models = append(models, m+": "+state)
	}
	for _, m := range slices.Sorted(maps.Keys(x.ModelStates)) {
		if !slices.Contains(x.Models, m) {
			models = append(models, m+": "+x.ModelStates[m])
		}
	}
	writeSection(w, "Models", models)
	if x.isCurrent() {
		writeWorkerLoad(w, x)
	}
	writeDrains(w, f, path)
	writeLastChanges(w, f, changesOf(path))
	return true
}

func writeWorkerLoad(w io.Writer, x *workerItem) {
	load := []string{
		fmt.Sprintf("running %d, waiting in the engine %d (metrics read %s ago)", x.Running, x.Waiting, formatAge(x.ScrapeAgeMS)),
		fmt.Sprintf("in flight from the local instance %d, backlog %s tokens", x.InFlight, formatCount(x.Backlog)),
		fmt.Sprintf("KV cache: %s used, %s of %s tokens free", newShareCell(x.KVTotal-x.KVFree, x.KVTotal).text, formatCount(x.KVFree), formatCount(x.KVTotal)),
		fmt.Sprintf("learned rates: prefill %s tok/s, decode %s tok/s", formatCount(int64(x.PrefillRate)), formatCount(int64(x.DecodeRate))),
	}
	if x.KVOvercommit > 0 {
		load = append(load, "KV cache that may be reserved: "+formatPercent(x.KVOvercommit))
	}
	if x.Prefix != "" {
		load = append(load, "prefix cache contents: "+x.Prefix)
	}
	writeSection(w, "Load", load)
}

func describeModel(w io.Writer, f *fleetFacts, name string) bool {
	all := listModels(f.status, f.spec)
	i := slices.IndexFunc(all, func(m modelItem) bool { return m.Name == name })
	if i < 0 {
		return false
	}
	m := &all[i]
	writeFact(w, "Model", name)
	switch {
	case f.spec == nil:
	case m.Declared:
		writeFact(w, "Spec", "declared")
	default:
		writeFact(w, "Spec", "not declared: clients of a service cannot request it")
	}
	writeFact(w, "Aliases", strings.Join(m.Aliases, ", "))
	writeFact(w, "Parent", m.Parent)
	writeFact(w, "Fallback", m.Fallback)
	if f.spec != nil {
		if d := f.spec.FindModel(name); d != nil {
			writeModelSpec(w, d)
		}
	}
	if m.Reporting > 0 {
		writeModelTable(w, []admin.ModelStatus{m.Capacity})
	} else {
		writeFact(w, "Capacity", "no reachable region reports the model")
	}
	var regions []string
	for k := range f.status.Regions {
		r := &f.status.Regions[k]
		if at := slices.IndexFunc(r.Models, func(x admin.ModelStatus) bool { return x.Name == name }); at >= 0 && isCurrentState(r.State) {
			x := &r.Models[at]
			regions = append(regions, fmt.Sprintf("%s  %s ready, %d running, %d queued, wait %s", r.Name, formatReadyCount(x), x.Running, x.Queued, formatSeconds(x.WaitSeconds)))
		} else {
			regions = append(regions, r.Name+"  not served: "+explainNotServed(r))
		}
	}
	writeSection(w, "Regions", regions)
	var workers []workerItem
	for _, x := range listWorkers(f.status) {
		if slices.Contains(x.Models, name) || x.ModelStates[name] != "" {
			workers = append(workers, x)
		}
	}
	writeSection(w, "Workers not ready", listUnreadyWorkers(workers))
	writeLastChanges(w, f, changesNaming("models", name))
	return true
}

func explainNotServed(r *admin.RegionStatus) string {
	if !isCurrentState(r.State) {
		return "the region is " + formatState(r.State, false)
	}
	return "no worker of the region has or can load the model"
}

func writeModelSpec(w io.Writer, d *spec.Model) {
	if d.MaxContext > 0 {
		writeFact(w, "Context", formatCount(int64(d.MaxContext))+" tokens")
	}
	writeFact(w, "TTFT target", fmt.Sprintf("interactive %s, standard %s, batch %s", d.TTFT.Interactive, d.TTFT.Standard, d.TTFT.Batch))
	if p := d.Price; p != (spec.Price{}) {
		writeFact(w, "Price", fmt.Sprintf("prompt $%g, completion $%g per million tokens", p.Prompt, p.Completion))
	}
	if d.WarmReplicas > 0 {
		writeFact(w, "Warm", fmt.Sprintf("%d replicas of each zone stay loaded", d.WarmReplicas))
	}
}

func describeTenant(w io.Writer, f *fleetFacts, name string) bool {
	if f.spec == nil {
		return false
	}
	all := listTenants(f.spec, f.now)
	i := slices.IndexFunc(all, func(t tenantItem) bool { return t.Name == name })
	if i < 0 {
		return false
	}
	t := &all[i]
	writeFact(w, "Tenant", name)
	writeFact(w, "Class", t.Class)
	writeFact(w, "Weight", fmt.Sprintf("%g", t.Weight))
	var keys []string
	declared := f.spec.FindTenant(name)
	for _, k := range declared.Keys {
		keys = append(keys, shortenHash(k)+"  valid until it is removed")
	}
	for k := range declared.TimedKeys {
		keys = append(keys, formatTimedKey(&declared.TimedKeys[k], f.now))
	}
	if len(keys) == 0 && len(f.spec.Issuers) == 0 {
		keys = []string{"none: no request can belong to the tenant; `spillway config key` creates one"}
	}
	writeSection(w, "Keys", keys)
	writeSection(w, "Limits in scope "+t.Scope, []string{
		"requests per minute: " + formatBound(int64(t.RequestsLimit)),
		"tokens per minute: " + formatBound(int64(t.TokensLimit)),
		"requests in flight: " + formatBound(int64(t.Concurrency)),
	})
	writeSection(w, "Budget per day", listBudget(&declared.Budget))
	writeFact(w, "Residency", strings.Join(t.Residency, ", "))
	writeFact(w, "Regions", strings.Join(t.Regions, ", "))
	writeFact(w, "Models", strings.Join(t.Models, ", "))
	writeFact(w, "Shares with", t.PrefixGroup)
	writeFact(w, "Trusted", formatYesNo(t.Trusted))
	writeFact(w, "Fallback", formatYesNo(t.Fallback))
	writeLastChanges(w, f, changesNaming("tenants", name))
	return true
}

func formatBound(n int64) string {
	if n == 0 {
		return "unlimited"
	}
	return formatCount(n)
}

func listBudget(b *spec.Budget) (lines []string) {
	if b.TokensPerDay > 0 {
		lines = append(lines, "tokens: "+formatCount(b.TokensPerDay))
	}
	if b.DollarsPerDay > 0 {
		lines = append(lines, fmt.Sprintf("dollars: %.2f", b.DollarsPerDay))
	}
	if len(lines) > 0 {
		lines = append(lines, "when spent: "+b.WhenSpent)
	}
	return lines
}

// shownHashDigits is how many characters of a key's hash are shown: enough to find it in the spec.
const shownHashDigits = len("sha256:") + 8

func shortenHash(hash string) string { return hash[:min(len(hash), shownHashDigits)] }

func formatTimedKey(k *spec.TimedKey, now time.Time) string {
	from, until := k.NotBefore.AsTime(), k.NotAfter.AsTime()
	text := shortenHash(k.Hash)
	switch {
	case !until.IsZero() && !now.Before(until):
		return text + "  expired at " + until.Format(time.RFC3339) + ": remove it from the spec"
	case now.Before(from):
		text += "  valid from " + from.Format(time.RFC3339)
	default:
		text += "  valid"
	}
	if until.IsZero() {
		return text + " until it is removed"
	}
	return text + " until " + until.Format(time.RFC3339)
}
