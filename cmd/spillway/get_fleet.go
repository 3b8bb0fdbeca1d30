package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/admin"
)

// loadFigures are the sums over the models of a region or zone. known is false if no report is recent enough to show.
type loadFigures struct {
	known                                    bool
	ready, total, running, queued            int64
	prefillRate, decodeRate, kvFree, kvTotal int64
	waitSeconds                              float64 // the longest of the models
}

// sumModels adds up the figures of models. Workers that serve several models are counted for each.
func sumModels(state string, models []admin.ModelStatus) loadFigures {
	f := loadFigures{known: state != admin.StateUnreachable && state != admin.StateUnknown}
	for i := range models {
		m := &models[i]
		f.ready, f.total = f.ready+m.Ready, f.total+m.Total
		f.running, f.queued = f.running+m.Running, f.queued+m.Queued
		f.prefillRate, f.decodeRate = f.prefillRate+m.PrefillRate, f.decodeRate+m.DecodeRate
		f.kvFree, f.kvTotal = f.kvFree+m.KVFree, f.kvTotal+m.KVTotal
		f.waitSeconds = max(f.waitSeconds, m.WaitSeconds)
	}
	return f
}

// loadColumns returns the columns of the figures that regions, zones and models share.
func loadColumns[T any](figures func(*T) loadFigures) []tableColumn[T] {
	column := func(title string, cell func(*loadFigures) tableCell) tableColumn[T] {
		return tableColumn[T]{title: title, cell: func(item *T) tableCell {
			f := figures(item)
			if !f.known {
				return newTextCell("")
			}
			return cell(&f)
		}}
	}
	return []tableColumn[T]{
		column("READY", func(f *loadFigures) tableCell {
			return newNumberCell(float64(f.ready), formatReadyCount(&admin.ModelStatus{Ready: f.ready, Total: f.total}))
		}),
		column("RUNNING", func(f *loadFigures) tableCell { return newCountCell(f.running) }),
		column("QUEUED", func(f *loadFigures) tableCell { return newCountCell(f.queued) }),
		column("WAIT", func(f *loadFigures) tableCell { return newSecondsCell(f.waitSeconds) }),
		column("PREFILL tok/s", func(f *loadFigures) tableCell { return newCountCell(f.prefillRate) }),
		column("DECODE tok/s", func(f *loadFigures) tableCell { return newCountCell(f.decodeRate) }),
		column("KV USED", func(f *loadFigures) tableCell { return newShareCell(f.kvTotal-f.kvFree, f.kvTotal) }),
	}
}

func joinColumns[T any](groups ...[]tableColumn[T]) []tableColumn[T] { return slices.Concat(groups...) }

const loadColumnsHelp = `Columns:
  STATE    of the reports: reporting, stale (shown as last reported), unreachable or unknown
  HEALTH   ready, degraded (a model has fewer ready workers than it should) or down (no ready worker)
  READY    ready workers and all workers, counted for each model that they serve
  WAIT     predicted queue wait of class standard, of the model with the longest
  KV USED  used share of the KV caches`

func newRegionKind() itemKind[admin.RegionStatus] {
	type region = admin.RegionStatus
	return itemKind[region]{
		name: "regions", aliases: []string{"region"}, short: "List the regions with their health, load and capacity",
		long:     loadColumnsHelp,
		examples: "  spillway get regions\n  spillway get regions -w\n  spillway get regions virginia tokyo -o wide --sort -queued",
		itemName: func(r *region) string { return r.Name },
		list: func(ctx context.Context, c *admin.Client) ([]region, error) {
			s, err := c.GetStatus(ctx)
			if err != nil {
				return nil, err
			}
			return s.Regions, nil
		},
		columns: joinColumns([]tableColumn[region]{
			{title: "NAME", cell: func(r *region) tableCell { return newTextCell(r.Name) }},
			{title: "STATE", cell: func(r *region) tableCell { return newTextCell(formatState(r.State, r.Draining)) }},
			{title: "HEALTH", cell: func(r *region) tableCell { return newTextCell(formatHealth(r.State, r.Models)) }},
			{title: "AGE", volatile: true, cell: func(r *region) tableCell { return newAgeCell(r.AgeMS) }},
			{title: "GATEWAYS", cell: func(r *region) tableCell { return newCountCell(int64(len(r.Gateways))) }},
			{title: "ZONES", cell: func(r *region) tableCell { return newCountCell(countZones(r)) }},
		}, loadColumns(func(r *region) loadFigures { return sumModels(r.State, r.Models) }), []tableColumn[region]{
			{title: "MODELS", wide: true, cell: func(r *region) tableCell { return newTextCell(listModelNames(r.Models)) }},
			{title: "SPEC", wide: true, cell: func(r *region) tableCell { return newTextCell(formatVersion(r.SpecVersion)) }},
			{title: "NOTE", wide: true, cell: func(r *region) tableCell { return newTextCell(r.Note) }},
		}),
	}
}

// countZones counts the zones of a region; a zone may have several instances.
func countZones(r *admin.RegionStatus) int64 {
	names := map[string]bool{}
	for i := range r.Zones {
		names[r.Zones[i].Name] = true
	}
	return int64(len(names))
}

func listModelNames(models []admin.ModelStatus) string {
	var names []string
	for i := range models {
		names = append(names, models[i].Name)
	}
	return strings.Join(names, ",")
}

// zoneItem is one local instance of a zone, with its region.
type zoneItem struct {
	Region string `json:"region"`
	admin.ZoneStatus
}

func (z *zoneItem) path() string { return z.Region + "/" + z.Name }

func newZoneKind() itemKind[zoneItem] {
	return itemKind[zoneItem]{
		name: "zones", aliases: []string{"zone"}, short: "List the zones by local instance, with their health, load and capacity",
		long:     loadColumnsHelp,
		examples: "  spillway get zones\n  spillway get zones virginia --sort -running\n  spillway get zones virginia/a -o yaml",
		itemName: (*zoneItem).path,
		list: func(ctx context.Context, c *admin.Client) ([]zoneItem, error) {
			s, err := c.GetStatus(ctx)
			if err != nil {
				return nil, err
			}
			return listZones(s), nil
		},
		columns: joinColumns([]tableColumn[zoneItem]{
			{title: "NAME", cell: func(z *zoneItem) tableCell { return newTextCell(z.path()) }},
			{title: "INSTANCE", cell: func(z *zoneItem) tableCell { return newTextCell(z.Instance) }},
			{title: "STATE", cell: func(z *zoneItem) tableCell { return newTextCell(formatState(z.State, z.Draining)) }},
			{title: "HEALTH", cell: func(z *zoneItem) tableCell { return newTextCell(formatHealth(z.State, z.Models)) }},
			{title: "AGE", volatile: true, cell: func(z *zoneItem) tableCell { return newAgeCell(z.AgeMS) }},
		}, loadColumns(func(z *zoneItem) loadFigures { return sumModels(z.State, z.Models) }), []tableColumn[zoneItem]{
			{title: "MODELS", wide: true, cell: func(z *zoneItem) tableCell { return newTextCell(listModelNames(z.Models)) }},
			{title: "ENDPOINT", wide: true, cell: func(z *zoneItem) tableCell { return newTextCell(z.Endpoint) }},
			{title: "NOTE", wide: true, cell: func(z *zoneItem) tableCell { return newTextCell(z.Note) }},
		}),
	}
}

func listZones(s *admin.Status) (out []zoneItem) {
	for i := range s.Regions {
		r := &s.Regions[i]
		for k := range r.Zones {
			z := zoneItem{r.Name, r.Zones[k]}
			if r.State == admin.StateUnreachable {
				z.State = r.State
			}
			out = append(out, z)
		}
	}
	return out
}

// workerItem is one worker, with its region, zone and local instance.
type workerItem struct {
	Region    string `json:"region"`
	Zone      string `json:"zone"`
	Instance  string `json:"instance"`
	ZoneState string `json:"zone_state"` // of the reports of the instance
	Draining  bool   `json:"draining,omitempty"`
	admin.WorkerStatus
}

func (w *workerItem) path() string { return w.Region + "/" + w.Zone + "/" + w.Name }

// isCurrent reports whether the figures are recent.
func (w *workerItem) isCurrent() bool {
	return w.ZoneState != admin.StateUnreachable && w.ZoneState != admin.StateUnknown
}

// stateText returns the state of a worker with its cause, and the drain of what contains it.
func (w *workerItem) stateText() string {
	if !w.isCurrent() {
		return "unknown: zone " + formatState(w.ZoneState, false)
	}
	state, reason := formatState(w.State, w.Draining && w.State != admin.StateDraining), w.Reason
	switch {
	case strings.HasPrefix(reason, admin.NotReady):
		return reason
	case reason != "" && reason != w.State:
		return state + " (" + reason + ")"
	}
	return state
}

func newWorkerKind() itemKind[workerItem] {
	column := func(title string, cell func(*workerItem) tableCell) tableColumn[workerItem] {
		return tableColumn[workerItem]{title: title, cell: func(w *workerItem) tableCell {
			if !w.isCurrent() {
				return newTextCell("")
			}
			return cell(w)
		}}
	}
	return itemKind[workerItem]{
		name: "workers", aliases: []string{"worker"}, short: "List the workers with their state, load, KV cache use and learned rates",
		long: `Columns:
  STATE     ready, not ready with the cause, draining or unhealthy
  RUNNING   requests that the engine runs, by its metrics
  WAITING   requests that wait inside the engine, by its metrics
  IN FLIGHT requests that the local instance sent and that are not finished
  BACKLOG   tokens that these have still to compute
  KV USED   used share of the KV cache
  SCRAPE    time since the engine's metrics were read`,
		examples: "  spillway get workers\n  spillway get workers virginia/a --sort -kv-used\n  spillway get workers virginia/a/w1 -o json",
		itemName: (*workerItem).path,
		list: func(ctx context.Context, c *admin.Client) ([]workerItem, error) {
			s, err := c.GetStatus(ctx)
			if err != nil {
				return nil, err
			}
			return listWorkers(s), nil
		},
		columns: []tableColumn[workerItem]{
			{title: "NAME", cell: func(w *workerItem) tableCell { return newTextCell(w.path()) }},
			{title: "GPU", cell: func(w *workerItem) tableCell { return newTextCell(w.GPU) }},
			{title: "STATE", cell: func(w *workerItem) tableCell { return newTextCell(w.stateText()) }},
			{title: "MODELS", cell: func(w *workerItem) tableCell { return newTextCell(formatWorkerModels(&w.WorkerStatus)) }},
			column("RUNNING", func(w *workerItem) tableCell { return newCountCell(w.Running) }),
			column("WAITING", func(w *workerItem) tableCell { return newCountCell(w.Waiting) }),
			column("IN FLIGHT", func(w *workerItem) tableCell { return newCountCell(w.InFlight) }),
			column("BACKLOG tok", func(w *workerItem) tableCell { return newCountCell(w.Backlog) }),
			column("KV USED", func(w *workerItem) tableCell { return newShareCell(w.KVTotal-w.KVFree, w.KVTotal) }),
			column("PREFILL tok/s", func(w *workerItem) tableCell { return newCountCell(int64(w.PrefillRate)) }),
			column("DECODE tok/s", func(w *workerItem) tableCell { return newCountCell(int64(w.DecodeRate)) }),
			{title: "SCRAPE", volatile: true, cell: func(w *workerItem) tableCell { return newAgeCell(w.ScrapeAgeMS) }},
			{title: "ENGINE", wide: true, cell: func(w *workerItem) tableCell { return newTextCell(w.Engine) }},
			{title: "SOURCE", wide: true, cell: func(w *workerItem) tableCell { return newTextCell(w.Source) }},
			{title: "CACHE", wide: true, cell: func(w *workerItem) tableCell { return newTextCell(w.Prefix) }},
			{title: "INSTANCE", wide: true, cell: func(w *workerItem) tableCell { return newTextCell(w.Instance) }},
			{title: "URL", wide: true, cell: func(w *workerItem) tableCell { return newTextCell(w.URL) }},
		},
	}
}

func listWorkers(s *admin.Status) (out []workerItem) {
	for _, z := range listZones(s) {
		for k := range z.Workers {
			out = append(out, workerItem{z.Region, z.Name, z.Instance, z.State, z.Draining, z.Workers[k]})
		}
	}
	slices.SortStableFunc(out, func(a, b workerItem) int {
		return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.Zone, b.Zone))
	})
	return out
}

func formatVersion(v uint64) string {
	if v == 0 {
		return ""
	}
	return "v" + formatCount(int64(v))
}
