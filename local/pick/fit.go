package pick

import "math"

// fit is a robust recursive least-squares line y = a + b x with exponential forgetting, two unknowns, in closed form.
type fit struct {
	a, b          float64 // current line
	a0, b0        float64 // prior
	p00, p01, p11 float64 // covariance
	scale         float64 // running size of residuals, for clipping
}

const (
	forget = 0.995 // about the last 200 observations count
	huber  = 2.0   // residuals beyond so many scales are clipped
)

func newFit(a, b float64) fit {
	// The prior's own uncertainty: half the intercept, half the slope.
	return fit{a: a, b: b, a0: a, b0: b, p00: 25, p11: 25 * (b / max(a, 1e-6)) * (b / max(a, 1e-6)), scale: 0.5 * (a + b)}
}

func (f *fit) observe(x, y float64) {
	r := y - (f.a + f.b*x)
	clip := huber * f.scale
	f.scale = max(0.98*f.scale+0.02*math.Min(math.Abs(r), 4*f.scale), 1e-6)
	r = max(-clip, min(clip, r))
	// Gain for features (1, x).
	u0 := f.p00 + f.p01*x
	u1 := f.p01 + f.p11*x
	d := forget + u0 + u1*x
	if !(d > 0) || math.IsInf(d, 0) {
		*f = newFit(f.a0, f.b0)
		return
	}
	g0, g1 := u0/d, u1/d
	f.a += g0 * r
	f.b += g1 * r
	f.p00 = (f.p00 - g0*u0) / forget
	f.p01 = (f.p01 - g0*u1) / forget
	f.p11 = (f.p11 - g1*u1) / forget
	f.tame()
}

// tame keeps the line within reach of the prior and the covariance from winding up while x does not vary.
func (f *fit) tame() {
	f.a = max(0, min(f.a, f.a0*spread))
	f.b = max(f.b0/spread, min(f.b, f.b0*spread))
	q := f.b0 / max(f.a0, 1e-6)
	f.p00 = max(1e-9, min(f.p00, 100))
	f.p11 = max(1e-9*q*q, min(f.p11, 100*q*q))
	if lim := 0.999 * math.Sqrt(f.p00*f.p11); math.Abs(f.p01) > lim {
		f.p01 = math.Copysign(lim, f.p01)
	}
}

func (f *fit) bounded() (a, b float64) { return f.a, f.b }
