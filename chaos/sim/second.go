package sim

import "time"

// Second counts the requests that fell due in one second of the run, warm-up included.
type Second struct {
	Sent int32 `json:"sent"`
	Good int32 `json:"good"` // those that met the SLO, whenever their answers ended
}

// second is the one in which a request fell due.
func (r *run) second(x *ride) *Second {
	n := int(x.due / int64(time.Second))
	for len(r.out.Seconds) <= n {
		r.out.Seconds = append(r.out.Seconds, Second{})
	}
	return &r.out.Seconds[n]
}
