package pick

import (
	"math"
	"slices"
	"time"
)

const (
	// fadeHalf is the time without an answer after which what is believed against a worker counts half. It doubles, up to
	// fadeMost, each time that an answer shows that it was true.
	fadeHalf = 15 * time.Second
	fadeMost = 4 * time.Minute
	// near is how close to its target what fades is taken to have come.
	near = 1.05
	// doubtful is by how much a worker must be believed faster than was last seen to take one request at a time.
	doubtful = 1.25
)

// Where a worker's rates are compared with its prior's: a prompt of 1,000 tokens, and 8 sequences of as many.
var (
	usualPrompt = vector{1, 1}
	usualStep   = vector{1, 8}
)

// Pace is how long the worker takes for a usual prompt and a usual step, as multiples of its prior. ok is false when
// nothing was heard of it since Fade was last called.
func (l *Learner) Pace() (prefill, step float64, ok bool) {
	return l.prefill.pace(&usualPrompt), l.step.pace(&usualStep), l.prefill.heard || l.step.heard
}

// Fade lets what is believed against a worker fade while it answers nothing: towards what its peers take, as multiples of
// their priors. Who is believed slow is sent nothing, and nothing would ever show that it is well again. What speaks for
// a worker stays. True when something has changed.
func (l *Learner) Fade(prefill, step float64, now time.Time) (changed bool) {
	dt := now.Sub(l.faded)
	first := l.faded.IsZero()
	l.faded = now
	l.half = min(max(l.half, fadeHalf), fadeMost)
	heard := l.prefill.heard || l.step.heard
	l.prefill.heard, l.step.heard = false, false
	if heard || first || dt <= 0 {
		return false
	}
	k := math.Exp2(-float64(dt) / float64(l.half))
	a, b := l.prefill.fade(&usualPrompt, prefill, k), l.step.fade(&usualStep, step, k)
	return a || b || l.relieve(now)
}

// relieve ends a doubt that no answer has ended in fadeMost: those that are no streams tell nothing.
func (l *Learner) relieve(now time.Time) (ended bool) {
	switch {
	case !l.prefill.doubted && !l.step.doubted:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = now
	case now.Sub(l.since) > fadeMost:
		l.prefill.doubted, l.step.doubted, l.since = false, false, time.Time{}
		return true
	}
	return false
}

// Doubted says that a worker is believed to be much faster than it last showed, so that one request at a time must tell.
func (l *Learner) Doubted() bool {
	return l.prefill.doubtful(&usualPrompt) || l.step.doubtful(&usualStep)
}

// settle books whether what had faded was true after all.
func (l *Learner) settle(f *fit, wasDoubted bool) {
	switch {
	case !wasDoubted:
	case f.w[1] >= f.kept[1]/2 && f.w[0] >= f.kept[0]/2:
		l.half = min(2*max(l.half, fadeHalf), fadeMost)
	default:
		l.half = fadeHalf
	}
}

func (v *vector) dot(x *vector) float64 { return v[0]*x[0] + v[1]*x[1] }

func (f *fit) pace(at *vector) float64 { return f.w.dot(at) / f.w0.dot(at) }

func (f *fit) doubtful(at *vector) bool { return f.doubted && f.kept.dot(at) > doubtful*f.w.dot(at) }

func (f *fit) fade(at *vector, peers, k float64) bool {
	if !(peers > 0) {
		return false
	}
	peers = max(1/spread, min(peers, spread))
	is, to := f.w.dot(at), peers*f.w0.dot(at)
	if !(is > to*(1+1e-9)) {
		return false
	}
	if !f.doubted {
		f.kept, f.doubted = f.w, true
	}
	if is <= near*to {
		k = 0
	}
	for i := range f.w {
		target := peers * f.w0[i]
		f.w[i] = target + k*(f.w[i]-target)
	}
	return true
}

// recall takes what had faded back when the first answer after it shows that it was true, and is open to news otherwise.
func (f *fit) recall(x *vector, y float64) {
	f.heard = true
	if !f.doubted {
		return
	}
	f.doubted = false
	if math.Abs(y-f.kept.dot(x)) < math.Abs(y-f.w.dot(x)) {
		f.w = f.kept
		return
	}
	f.open()
}

// Median of xs, which it sorts; 0 of none.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	slices.Sort(xs)
	return xs[(len(xs)-1)/2]
}
