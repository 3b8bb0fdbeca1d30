package warm

import "time"

// Hope is what somebody may expect who asks for a model that nobody has ready.
type Hope uint8

// The hopes, the worst first.
const (
	None     Hope = iota // no worker that is up can have it
	Failed               // every worker that could failed lately
	Full                 // every worker that could is full of models in use
	Possible             // it can be loaded now, or is after what is being loaded
	Coming               // it is being loaded, or its worker woken
)

// Outlook is the answer to "when will this model be ready?".
type Outlook struct {
	Hope Hope
	// Wait is the predicted time until it is, or for Failed until the next try.
	Wait time.Duration
}

// Look says what may be expected of a model that no worker has ready. z is not changed, but for what Decide counts anew.
func Look(c Config, z *Zone, m int, now time.Time) Outlook {
	d := decision{c: c.WithDefaults(), z: z, now: now}
	d.count()
	best := Outlook{}
	for i := range z.Workers {
		if o := d.outlook(i, m); o.Hope > best.Hope || o.Hope == best.Hope && o.Wait < best.Wait {
			best = o
		}
	}
	return best
}

func (d *decision) outlook(i, m int) Outlook {
	w := &d.z.Workers[i]
	at := w.place(m)
	if at < 0 || !w.Up {
		return Outlook{}
	}
	p := &w.Places[at]
	load := seconds(p.Seconds)
	switch {
	case p.State == Loaded && w.awake():
		return Outlook{Hope: Coming}
	case p.State == Loading:
		return Outlook{Coming, left(load, d.now.Sub(p.Since))}
	case w.Asleep && w.Nap == Loading:
		wait := left(seconds(w.WakeSeconds), d.now.Sub(w.NapSince))
		if p.State != Loaded {
			wait += load
		}
		return Outlook{Coming, wait}
	case w.Asleep && !w.MayWake:
		return Outlook{}
	case w.Asleep && d.now.Before(w.WakeRetry):
		return Outlook{Failed, w.WakeRetry.Sub(d.now)}
	case d.now.Before(p.Retry):
		return Outlook{Failed, p.Retry.Sub(d.now)}
	case w.Asleep && p.State == Loaded:
		return Outlook{Possible, seconds(w.WakeSeconds)}
	case w.Asleep:
		return Outlook{Possible, load + seconds(w.WakeSeconds)}
	case w.Nap == Unloading || p.State == Unloading:
		return Outlook{Possible, load + seconds(w.WakeSeconds)}
	}
	held, leaving := w.held()
	if w.Max > 0 && held-leaving >= w.Max && d.victim(w, m) < 0 {
		return Outlook{Full, load}
	}
	return Outlook{Possible, load}
}

// left is what is left of a load that was expected to take so long. One that is late is expected to take another tenth.
func left(all, gone time.Duration) time.Duration { return max(all-gone, all/10) }

// maxSeconds caps what is believed of a prediction.
const maxSeconds = 3600

func seconds(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, maxSeconds) * float64(time.Second))
}
