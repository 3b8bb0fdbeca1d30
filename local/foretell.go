package local

import "time"

// foretold books the prefill of an answer that is no stream as done when it should be. It is used again and again.
type foretold struct {
	f  *floor
	at *attempt
	t  *time.Timer
}

// foretell books an attempt's prefill after a while, unless it is stopped before.
func (f *floor) foretell(at *attempt, after time.Duration) *foretold {
	x, ok := f.foretold.Get().(*foretold)
	if ok {
		x.at = at
		x.t.Reset(after)
		return x
	}
	x = &foretold{f: f, at: at}
	x.t = time.AfterFunc(after, x.come)
	return x
}

func (x *foretold) come() { x.f.prefilled(x.at) }

// stop ends it. One that has come may be under way, and is left to itself.
func (x *foretold) stop() {
	if x.t.Stop() {
		x.at = nil
		x.f.foretold.Put(x)
	}
}
