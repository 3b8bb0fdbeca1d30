package pick

import "math"

// features of a fit: 1, and a quantity.
const features = 2

type (
	vector [features]float64
	matrix [features]vector
)

// fit is a robust recursive least-squares line y = w0 + w1 x. What it has seen is forgotten, and the prior takes its place:
// it counts for as much as one whole set of weights that nobody is sure of. Without that, nothing holds a weight that what
// is seen says nothing of: where all prompts are short the time for a long one would wander off on noise.
type fit struct {
	w, w0 vector  // current weights, and the prior's
	p     matrix  // covariance, against a noise of 1
	scale float64 // running size of residuals, for clipping
	noise float64 // running size of residuals that are no outliers
	seen  int     // of those, up to a bound
	mean  float64 // running mean of x; 0 before any was seen
	run   int     // clipped residuals in a row, negative ones counted below zero
	kept  vector  // what was believed before it faded; it counts while doubted is set
	heard bool    // something was observed since the last fade
	// doubted says that what was believed has faded, and nothing was observed since.
	doubted bool
}

const (
	forget = 0.995 // about the last 200 observations count
	huber  = 2.0   // residuals beyond so many scales are clipped
	slight = 0.1   // residuals of so small a part of what was believed are neither outliers nor news
	noised = 50    // about so many residuals count for how much noise there is
	news   = 4     // so many of them in a row, to one side, are no outliers: things have changed
)

// What is believed of how far off a prior may be. A worker is faster or slower than expected as a whole: open is by how much,
// as a part, when nothing is known or things have changed, and usual in the long run. How a time divides among the weights
// differs less: shape is by how much each may be off by itself; the first holds how engines schedule, which no datasheet knows.
const (
	open  = 5.0
	usual = 1.0
	loud  = 0.3 // noise, as a part of a time, before any was seen
)

var shape = vector{2, 0.5}

func newFit(prior vector) fit {
	f := fit{w: prior, w0: prior, scale: 0.5}
	f.open()
	return f
}

// open makes the fit believe what comes next and little of what it has seen.
func (f *fit) open() { f.p = f.spread(open, 1/(loud*loud)) }

// spread is the covariance of what the prior may be off by, times a factor.
func (f *fit) spread(whole, by float64) (v matrix) {
	for i := range v {
		for j := range v[i] {
			v[i][j] = by * whole * whole * f.w0[i] * f.w0[j]
		}
		own := shape[i] * max(f.w0[i], 1e-6)
		v[i][i] += by * own * own
	}
	return v
}

// inverse of a covariance; ok is false where it has none.
func (v *matrix) inverse() (inv matrix, ok bool) {
	det := v[0][0]*v[1][1] - v[0][1]*v[1][0]
	if !(det > 0) || math.IsInf(det, 0) {
		return inv, false
	}
	return matrix{{v[1][1] / det, -v[0][1] / det}, {-v[1][0] / det, v[0][0] / det}}, true
}

// observe takes in that y was seen at x. What is large is as uncertain in proportion as what is small: residuals count as parts
// of what the prior expects there.
func (f *fit) observe(x, y float64) {
	at := vector{1, x}
	f.recall(&at, y)
	if f.mean == 0 {
		f.mean = x
	}
	f.mean += 0.02 * (x - f.mean)
	size := f.w0.dot(&at)
	at[0], at[1], y = at[0]/size, at[1]/size, y/size
	seen := f.w.dot(&at)
	r := y - seen
	clip := max(huber*f.scale, slight*seen)
	if f.surprised(r, clip) {
		clip = max(huber*f.scale, slight*seen)
	}
	f.size(r, clip)
	f.lapse()
	r = max(-clip, min(clip, y-f.w.dot(&at)))
	var gain vector
	d := 1.0
	for i := range gain {
		gain[i] = f.p[i].dot(&at)
		d += gain[i] * at[i]
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
		}
	}
	f.tame()
}

// size takes a residual into their running size, and one that is no outlier into what counts as noise: that soon while few
// were seen.
func (f *fit) size(r, clip float64) {
	r = math.Abs(r)
	f.scale = max(0.98*f.scale+0.02*math.Min(r, 4*f.scale), 1e-6)
	if r <= clip {
		f.seen = min(f.seen+1, noised)
		f.noise += (r - f.noise) / float64(f.seen)
	}
}

// lapse forgets a part of what was seen and puts as much of the prior in its place.
func (f *fit) lapse() {
	prior := f.spread(usual, 1/max(f.noise*f.noise, 1e-6))
	seen, ok := f.p.inverse()
	knows, too := prior.inverse()
	if !ok || !too {
		return
	}
	for i := range seen {
		for j := range seen[i] {
			knows[i][j] *= 1 - forget
			seen[i][j] = forget*seen[i][j] + knows[i][j]
		}
	}
	p, ok := seen.inverse()
	if !ok {
		return
	}
	f.p = p
	off := vector{f.w0[0] - f.w[0], f.w0[1] - f.w[1]}
	pull := vector{knows[0].dot(&off), knows[1].dot(&off)}
	for i := range f.w {
		f.w[i] += f.p[i].dot(&pull)
	}
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

// steepen makes the line as steep as the prior's where it is flatter, at the height that is believed at x. Where most of each
// prompt is cached nearly all that are seen are short, and what is short hides in a step that reads the weights anyway: an
// L4 was believed to prefill sixteen times as fast as it can, a miss to cost next to nothing, and trees of thoughts were
// sent away from their caches. A worker that is faster than its prior throughout may be flatter by as much. The other way
// nothing is drawn: what an engine's server, a proxy or a step under way adds to every first token is no slowness of prompts.
func (f *fit) steepen(x *vector) {
	k := min(f.w.dot(x)/f.w0.dot(x), 1)
	if d := k*f.w0[1] - f.w[1]; d > 0 {
		f.w[1] += d
		f.w[0] -= d * x[1]
		f.tame()
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
	f.open()
	return true
}

// tame keeps the weights within reach of the prior and the covariance from winding up while a quantity does not vary.
func (f *fit) tame() {
	f.w[0] = max(0, min(f.w[0], f.w0[0]*spread))
	for i := 1; i < features; i++ {
		f.w[i] = max(f.w0[i]/spread, min(f.w[i], f.w0[i]*spread))
	}
	for i := range f.p {
		qq := f.w0[i] * f.w0[i]
		f.p[i][i] = max(1e-9*qq, min(f.p[i][i], 1e4*qq))
	}
	for i := range f.p {
		for j := range i {
			lim := 0.999 * math.Sqrt(f.p[i][i]*f.p[j][j])
			c := max(-lim, min(lim, (f.p[i][j]+f.p[j][i])/2))
			f.p[i][j], f.p[j][i] = c, c
		}
	}
}
