package pick

import "math"

// features of a fit: 1, and two quantities.
const features = 3

type vector [features]float64

// fit is a robust recursive least-squares plane y = w0 + w1 x1 + w2 x2 with exponential forgetting. An unused quantity is
// always 0 and its weight stays at the prior.
type fit struct {
	w, w0 vector           // current weights, and the prior's
	p     [features]vector // covariance
	q     vector           // the prior's uncertainty of each weight, in units of the first one's
	scale float64          // running size of residuals, for clipping
	run   int              // clipped residuals in a row, negative ones counted below zero
	kept  vector           // what was believed before it faded; it counts while doubted is set
	heard bool             // something was observed since the last fade
	// doubted says that what was believed has faded, and nothing was observed since.
	doubted bool
}

const (
	forget = 0.995 // about the last 200 observations count
	huber  = 2.0   // residuals beyond so many scales are clipped
	news   = 4     // so many of them in a row, to one side, are no outliers: things have changed
)

func newFit(prior vector) fit {
	f := fit{w: prior, w0: prior}
	for i := range f.q {
		// The prior's own uncertainty: each weight by its own size.
		f.q[i] = prior[i] / max(prior[0], 1e-6)
		f.scale += 0.5 * prior[i]
	}
	f.q[0] = 1
	for i := range f.p {
		f.p[i][i] = 25 * f.q[i] * f.q[i]
	}
	return f
}

// observe takes in that y was seen at x1 and x2.
func (f *fit) observe(x1, x2, y float64) {
	x := vector{1, x1, x2}
	f.recall(&x, y)
	r := y - (f.w[0] + f.w[1]*x1 + f.w[2]*x2)
	clip := huber * f.scale
	if f.surprised(r, clip) {
		clip = huber * f.scale
	}
	f.scale = max(0.98*f.scale+0.02*math.Min(math.Abs(r), 4*f.scale), 1e-6)
	r = max(-clip, min(clip, r))
	var gain vector
	d := forget
	for i := range gain {
		for j := range x {
			gain[i] += f.p[i][j] * x[j]
		}
		d += gain[i] * x[i]
	}
	if !(d > 0) || math.IsInf(d, 0) || math.IsNaN(r) {
		*f = newFit(f.w0)
		return
	}
	for i := range gain {
		f.w[i] += gain[i] / d * r
	}
	for i := range f.p {
		for j := range f.p[i] {
			f.p[i][j] -= gain[i] * gain[j] / d
			f.p[i][j] /= forget
		}
	}
	f.tame()
}

// shapely is how much of what is left between the plane and one of the prior's own shape each observation takes.
const shapely = 0.3

// lean draws the plane to the prior's shape, at the height that is believed at x. While the balance is good a fleet's loads
// differ little: observations then say how long a step is, and not which weight makes it so, and what noise makes of that
// would be believed of loads that were not seen.
func (f *fit) lean(x *vector) {
	k := f.w.dot(x) / f.w0.dot(x)
	for i := range f.w {
		f.w[i] += shapely * (k*f.w0[i] - f.w[i])
	}
}

// surprised says that things have changed, and makes the fit as open to news as it was in the beginning.
func (f *fit) surprised(r, clip float64) bool {
	switch {
	case r > clip:
		f.run = max(f.run, 0) + 1
	case r < -clip:
		f.run = min(f.run, 0) - 1
	default:
		f.run = 0
	}
	if f.run > -news && f.run < news {
		return false
	}
	f.run = 0
	f.scale = math.Min(math.Abs(r), 10*f.scale)
	for i := range f.p {
		f.p[i] = vector{}
		f.p[i][i] = 25 * f.q[i] * f.q[i]
	}
	return true
}

// tame keeps the weights within reach of the prior and the covariance from winding up while a quantity does not vary.
func (f *fit) tame() {
	f.w[0] = max(0, min(f.w[0], f.w0[0]*spread))
	for i := 1; i < features; i++ {
		f.w[i] = max(f.w0[i]/spread, min(f.w[i], f.w0[i]*spread))
	}
	for i := range f.p {
		qq := f.q[i] * f.q[i]
		f.p[i][i] = max(1e-9*qq, min(f.p[i][i], 100*qq))
	}
	for i := range f.p {
		for j := range i {
			lim := 0.999 * math.Sqrt(f.p[i][i]*f.p[j][j])
			c := max(-lim, min(lim, (f.p[i][j]+f.p[j][i])/2))
			f.p[i][j], f.p[j][i] = c, c
		}
	}
}
