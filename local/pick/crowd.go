package pick

import (
	"math"
	"time"
)

// crowd is what a worker's peers take, those of the same GPU type and model, and how far it stands from them. Equal
// workers' rates differ by what each happened to be sent; a choice that took that noise for truth would leave a cached
// prefix for it, and send to one worker what it keeps from the others. So they count as equal until one stands apart.
type crowd struct {
	seen  bool    // the worker has answered something
	known bool    // w is
	w     vector  // median weights of the peers
	apart float64 // logarithm of the worker's pace over theirs, smoothed
	at    time.Time
}

const (
	// crowdLeast is how many workers make a crowd.
	crowdLeast = 3
	// apartFrom is the factor up to which a worker's pace counts as its peers', and apartTo the one from which it counts
	// as its own.
	apartFrom, apartTo = 1.5, 2.0
	// apartHalf is the time in which half of a change of pace is believed.
	apartHalf = 2 * time.Second
)

// Gather compares workers that serve the same model: those with equal priors are peers. Call it a few times a second.
func Gather(list []*Learner, now time.Time) {
	for len(list) > 0 {
		first, rest := list[0], list[:0:0]
		peers := make([]*Learner, 0, len(list))
		for _, l := range list {
			if l.prefill.w0 == first.prefill.w0 && l.step.w0 == first.step.w0 {
				peers = append(peers, l)
			} else {
				rest = append(rest, l)
			}
		}
		gather(peers, 0, now)
		gather(peers, 1, now)
		list = rest
	}
}

// gather compares peers by one of their two fits, where most of what they were sent lies: there a fit is sure of itself.
func gather(peers []*Learner, which int, now time.Time) {
	var w vector
	xs := make([]float64, 0, len(peers))
	for i := range w {
		xs = xs[:0]
		for _, l := range peers {
			if l.crowd[which].seen {
				xs = append(xs, l.fit(which).w[i])
			}
		}
		w[i] = Median(xs)
	}
	xs = xs[:0]
	for _, l := range peers {
		if x := l.fit(which).mean; x > 0 {
			xs = append(xs, x)
		}
	}
	usual := vector{1, Median(xs)}
	for _, l := range peers {
		l.crowd[which].meet(l.fit(which), &w, &usual, len(xs) >= crowdLeast, now)
	}
}

func (l *Learner) fit(which int) *fit { return [...]*fit{&l.prefill, &l.step}[which] }

// meet books what the peers take.
func (c *crowd) meet(f *fit, w, usual *vector, known bool, now time.Time) {
	ratio := f.w.dot(usual) / w.dot(usual)
	if !known || !(ratio > 0) || math.IsInf(ratio, 0) {
		*c = crowd{seen: c.seen}
		return
	}
	k := 1.0
	if dt := now.Sub(c.at); c.known && dt >= 0 {
		k -= math.Exp2(-float64(dt) / float64(apartHalf))
	}
	c.apart += k * (math.Log(ratio) - c.apart)
	c.w, c.known, c.at = *w, true, now
}

// temper is a fit's weights as they count: the peers' while the worker is near them, its own when it stands apart.
func (c *crowd) temper(f *fit) vector {
	if !c.known {
		return f.w
	}
	k := (math.Abs(c.apart) - math.Log(apartFrom)) / math.Log(apartTo/apartFrom)
	k = max(0, min(k, 1))
	out := c.w
	for i := range out {
		out[i] += k * (f.w[i] - out[i])
	}
	return out
}
