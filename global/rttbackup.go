package global

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// Measured RTTs are persisted in the backup of the state, so that a restarted node does not steer by distance until
// gateways report. The persisted RTTs of a region are used until the first report of one of its gateways; from then
// on its reports alone are used. The age of persisted RTTs includes the time that the node was stopped, by the wall
// clock. They expire like the RTTs of a report (Config.MaxMeasurementAge). A file with a future date is not used,
// because the age of its content is unknown.

// measuredFormatVersion is the version of the format below. Other versions are ignored.
const measuredFormatVersion = 1

// measuredFile is the RTT part of the backup.
type measuredFile struct {
	Version int              `json:"version"`
	AtMS    int64            `json:"at_ms"` // wall clock, milliseconds of Unix time
	Regions []measuredRegion `json:"regions"`
}

type measuredRegion struct {
	Region string         `json:"region"`
	RTTs   []measuredPair `json:"rtts"`
}

// measuredPair is a capacity.CellRTT.
type measuredPair struct {
	Cell        string `json:"cell"`
	Samples     int64  `json:"samples"`
	TotalMicros int64  `json:"total_us"`
	AgeSec      int64  `json:"age_s"`
}

// datedRTTs are the valid RTTs at a wall-clock time.
type datedRTTs struct {
	all      []snapshot.RegionRTTs
	maxAge   time.Duration
	wallTime time.Time
}

func (m *datedRTTs) encodeFile() ([]byte, error) { return encodeMeasured(m.all, m.maxAge, m.wallTime) }

// encodeMeasured returns nil if there is nothing to persist. RTTs older than limit are left out.
func encodeMeasured(all []snapshot.RegionRTTs, limit time.Duration, wall time.Time) ([]byte, error) {
	f := measuredFile{Version: measuredFormatVersion, AtMS: wall.UnixMilli()}
	for _, x := range all {
		var pairs []measuredPair
		for i := range x.RTTs {
			r := &x.RTTs[i]
			if old := snapshot.SecondsToAge(r.AgeSec) + x.Age; r.Samples > 0 && old <= limit {
				pairs = append(pairs, measuredPair{r.Cell, r.Samples, r.TotalMicros, int64(old / time.Second)})
			}
		}
		if len(pairs) > 0 {
			f.Regions = append(f.Regions, measuredRegion{x.Region, pairs})
		}
	}
	if len(f.Regions) == 0 {
		return nil, nil
	}
	if len(f.Regions) > steer.MaxRegions {
		f.Regions = f.Regions[:steer.MaxRegions]
	}
	part := min(capacity.MaxRTTs, maxMeasured/len(f.Regions))
	for i := range f.Regions {
		pairs := f.Regions[i].RTTs
		slices.SortFunc(pairs, func(a, b measuredPair) int {
			return cmp.Or(cmp.Compare(b.Samples, a.Samples), cmp.Compare(a.Cell, b.Cell))
		})
		f.Regions[i].RTTs = pairs[:min(len(pairs), part)]
	}
	return json.Marshal(f)
}

var errBadMeasured = errors.New("measured RTTs are malformed, of another version, or dated in the future")

// decodeMeasured decodes the output of encodeMeasured and adds the age up to wall.
func decodeMeasured(b []byte, wall time.Time) (out []snapshot.RegionRTTs, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	var f measuredFile
	if json.Unmarshal(b, &f) != nil || f.Version != measuredFormatVersion || f.AtMS <= 0 || len(f.Regions) > steer.MaxRegions {
		return nil, errBadMeasured
	}
	sec := (wall.UnixMilli() - f.AtMS) / 1000
	if sec < -int64(clockTolerance/time.Second) {
		return nil, errBadMeasured
	}
	for _, x := range f.Regions {
		if x.Region == "" || len(x.Region) > capacity.MaxName || len(x.RTTs) > capacity.MaxRTTs {
			return nil, errBadMeasured
		}
		r := snapshot.RegionRTTs{Region: x.Region, Age: snapshot.SecondsToAge(max(sec, 0))}
		for _, p := range x.RTTs {
			if p.Cell == "" || len(p.Cell) > capacity.MaxName || p.Samples <= 0 || p.TotalMicros < 0 || p.AgeSec < 0 ||
				max(p.Samples, p.TotalMicros, p.AgeSec) > capacity.MaxAmount {
				return nil, errBadMeasured
			}
			r.RTTs = append(r.RTTs, capacity.CellRTT{Cell: p.Cell, Samples: p.Samples, TotalMicros: p.TotalMicros, AgeSec: p.AgeSec})
		}
		out = append(out, r)
	}
	return out, nil
}

// measurements are the reported RTTs, with the persisted RTTs of regions that have not reported. It belongs to the
// snapshotBuilder.
type measurements struct {
	persisted      []snapshot.RegionRTTs
	readAt         time.Time // monotonic time at which persisted was read
	offeredAt      time.Time // when they were last offered for writing
	offeredRegions int       // the number of measuring regions at that time
}

// mergeReports returns all valid RTTs.
func (m *measurements) mergeReports(children *capacity.CapacityView, now time.Time) []snapshot.RegionRTTs {
	out := snapshot.ReportedRTTs(children)
	m.persisted = slices.DeleteFunc(m.persisted, func(x snapshot.RegionRTTs) bool {
		return slices.ContainsFunc(out, func(r snapshot.RegionRTTs) bool { return r.Region == x.Region })
	})
	for _, x := range m.persisted {
		x.Age += now.Sub(m.readAt)
		out = append(out, x)
	}
	return out
}

// isWriteDue reports whether to write the RTTs now: another region measures, or the interval has passed.
func (m *measurements) isWriteDue(measuring int, now time.Time) bool {
	if measuring == 0 || measuring == m.offeredRegions && now.Sub(m.offeredAt) < measuredEvery {
		return false
	}
	m.offeredRegions, m.offeredAt = measuring, now
	return true
}
