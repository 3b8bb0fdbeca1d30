package sim

import (
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/sched"
)

// nextScrapeAt is the time of a worker's next scrape.
func (zt *zoneTier) nextScrapeAt(s *workerHandle) int64 {
	return zt.loop.now + int64(float64(zt.scrapeInterval)*s.scrapeJitter.NextFactor())
}

// runScheduledScrape scrapes a worker; the reading is recorded when it arrives.
func (zt *zoneTier) runScheduledScrape(at int32) {
	zt.loop.addEvent(event{at: zt.nextScrapeAt(zt.topology.handles[at]), kind: evScrapeDue, index: at})
	zt.scrapeWorker(at)
}

// errConnRefused is the result of scraping a dead worker.
const connRefused = "connection refused"

func (zt *zoneTier) scrapeWorker(at int32) {
	s := zt.topology.handles[at]
	if s.instance.down {
		return
	}
	p := &report.Reading{}
	if s.worker.deathCauses == 0 {
		*p = s.worker.currentReading(zt.loop.currentTime())
	}
	if zt.scenario.Staleness.Delay > 0 {
		zt.loop.addEvent(event{at: zt.loop.now + int64(zt.scenario.Staleness.Delay), kind: evScrapeResult, index: at, payload: p})
	} else {
		zt.recordScrape(s, p)
	}
}

func (zt *zoneTier) recordScrape(s *workerHandle, reading *report.Reading) {
	if s.instance.down {
		return
	}
	now := zt.loop.currentTime()
	failed := ""
	if reading.ReadAt.IsZero() {
		failed = connRefused
	} else {
		reading.ReadAt, reading.LoadReadAt = now, now // a reader cannot know how old it is
	}
	s.instance.sim.recordScrape(s.simWorker, reading, failed, now)
	zt.handleSettled(s.instance)
}

func (zt *zoneTier) checkWorkers(a *localInstance) {
	zt.loop.addEvent(event{at: zt.loop.now + int64(sched.PatrolInterval), kind: evCheckWorkers, index: a.index})
	if a.down {
		return
	}
	now := zt.loop.currentTime()
	for _, s := range a.handles {
		if s.decoding > 0 && s.worker.stallCauses == 0 && s.worker.deathCauses == 0 {
			a.sim.RecordProgress(s.simWorker, now)
		}
	}
	a.sim.CheckWorkers(now)
	zt.handleSettled(a)
}
