package load

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// rateWindow is the interval of a client's rates.
	rateWindow = 600 * time.Second
	// maxClients and maxWindows bound the size of a ServeGen trace.
	maxClients, maxWindows = 100_000, 100_000
)

// serveGenRate is one client's arrivals in one window.
type serveGenRate struct {
	window int32
	gamma  bool    // distribution of the intervals: Gamma, else Weibull
	rate   float32 // requests per second
	shape  float32
}

// serveGenLengths are one client's lengths from a window on.
type serveGenLengths struct {
	window  int32
	in, out lengthCurve
}

// serveGenModel is one ServeGen model: the requests of each of its clients over time.
type serveGenModel struct {
	name    string
	windows int // after which the trace repeats
	rates   map[int][]serveGenRate
	lengths map[int][]serveGenLengths
	pooled  []serveGenLengths // of all clients, for those without lengths of their own
	weights []float64         // cumulative numbers of requests with these lengths
}

// serveGenFiles are the files of a ServeGen model in the directory of traces.
func serveGenFiles(model string) (rates, lengths string, err error) {
	known := map[string]string{
		"m-large": "language_m-large_%s_week1.csv.gz", "m-mid": "language_m-mid_%s_week1.csv.gz", "m-small": "language_m-small_%s_week1.csv.gz",
		"deepseek-r1": "reason_deepseek-r1_%s_1day.csv.gz", "mm-image": "multimodal_mm-image_%s_1day.csv.gz",
	}
	name, ok := known[model]
	if !ok {
		return "", "", fmt.Errorf("models: unknown ServeGen model %q: use m-large, m-mid, m-small, deepseek-r1 or mm-image", model)
	}
	return "servegen/" + fmt.Sprintf(name, "rates"), "servegen/" + fmt.Sprintf(name, "lens"), nil
}

// readServeGen reads a model's two files.
func readServeGen(name, rates, lengths string) (*serveGenModel, error) {
	m := &serveGenModel{name: name, rates: map[int][]serveGenRate{}, lengths: map[int][]serveGenLengths{}}
	if err := readTable(rates, 7, "client,t,rate,cv,dist,p1,p2", m.addRate); err != nil {
		return nil, err
	}
	reader := lengthReader{model: m, sums: map[[2]int]*serveGenLengths{}}
	if err := readTable(lengths, 15, "client,t,field,mean,q0,q1,q5,q10,q25,q50,q75,q90,q95,q99,q100", reader.addLengths); err != nil {
		return nil, err
	}
	if len(m.rates) == 0 {
		return nil, fmt.Errorf("%s: no client has a rate", rates)
	}
	for _, list := range m.rates {
		slices.SortStableFunc(list, func(a, b serveGenRate) int { return int(a.window - b.window) })
	}
	if err := reader.addPooled(); err != nil {
		return nil, fmt.Errorf("%s: %w", lengths, err)
	}
	return m, nil
}

// readTable passes each line of a CSV table to add. Errors name the file and the line.
func readTable(path string, fields int, heading string, add func(fields []string) error) error {
	f, err := openFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return scanTable(f, path, fields, heading, add)
}

func scanTable(r io.Reader, name string, fields int, heading string, add func(fields []string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 4096), 4096)
	line := 0
	for s.Scan() {
		line++
		text := strings.TrimSpace(s.Text())
		if text == "" || line == 1 && text == heading {
			continue
		}
		list := strings.Split(text, ",")
		if len(list) != fields {
			return fmt.Errorf("%s: line %d: %d fields, want %s", name, line, len(list), heading)
		}
		if err := add(list); err != nil {
			return fmt.Errorf("%s: line %d: %w", name, line, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: after line %d: %w", name, line, err)
	}
	return nil
}

// parseClientTime parses the first two fields of a line.
func parseClientTime(f []string) (client, at int, err error) {
	client, err = strconv.Atoi(f[0])
	if err != nil || client < 0 || client >= maxClients {
		return 0, 0, fmt.Errorf("%.40q is not a client's number", f[0])
	}
	seconds, err := strconv.Atoi(f[1])
	if err != nil || seconds < 0 || seconds/int(rateWindow.Seconds()) >= maxWindows {
		return 0, 0, fmt.Errorf("%.40q is not a time in seconds", f[1])
	}
	return client, seconds / int(rateWindow.Seconds()), nil
}

func parseFigure(s, what string, least, most float64) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil || !(x >= least && x <= most) {
		return 0, fmt.Errorf("%s: %.40q is not between %g and %g", what, s, least, most)
	}
	return x, nil
}

func (m *serveGenModel) addRate(f []string) error {
	client, at, err := parseClientTime(f)
	if err != nil {
		return err
	}
	rate, err := parseFigure(f[2], "rate", 0, 1e6)
	if err != nil {
		return err
	}
	if f[4] != "G" && f[4] != "W" {
		return fmt.Errorf("dist: %.40q is neither G nor W", f[4])
	}
	shape, err := parseFigure(f[5], "p1", 1e-6, 1e9)
	if err != nil {
		return err
	}
	m.windows = max(m.windows, at+1)
	m.rates[client] = append(m.rates[client], serveGenRate{window: int32(at), gamma: f[4] == "G", rate: float32(rate), shape: float32(shape)})
	return nil
}

// lengthReader collects a client's lengths. The input may be in several fields.
type lengthReader struct {
	model *serveGenModel
	sums  map[[2]int]*serveGenLengths
	order [][2]int
}

func (l *lengthReader) addLengths(f []string) error {
	client, at, err := parseClientTime(f)
	if err != nil {
		return err
	}
	if !strings.HasSuffix(f[2], "_tokens") {
		return nil // counts of pictures, ratios
	}
	key := [2]int{client, at}
	g := l.sums[key]
	if g == nil {
		g = &serveGenLengths{window: int32(at)}
		l.sums[key], l.order = g, append(l.order, key)
	}
	curve := &g.in
	if f[2] == "output_tokens" {
		curve = &g.out
	}
	mean, err := parseFigure(f[3], "mean", 0, maxTraceTokens)
	if err != nil {
		return err
	}
	curve.mean += mean
	for i := range lengthPercents {
		x, err := parseFigure(f[4+i], f[2], 0, maxTraceTokens)
		if err != nil {
			return err
		}
		curve.quantiles[i] += x
	}
	if !slices.IsSorted(curve.quantiles[:]) {
		return fmt.Errorf("%s: the quantiles do not ascend", f[2])
	}
	return nil
}

func (l *lengthReader) addPooled() error {
	m := l.model
	for _, key := range l.order {
		g := l.sums[key]
		m.lengths[key[0]] = append(m.lengths[key[0]], *g)
	}
	if len(m.lengths) == 0 {
		return fmt.Errorf("no client has lengths")
	}
	var weight float64
	for _, client := range slices.Sorted(maps.Keys(m.lengths)) {
		list := m.lengths[client]
		slices.SortStableFunc(list, func(a, b serveGenLengths) int { return int(a.window - b.window) })
		for i := range list {
			weight += m.requestWeight(client, list, i)
			m.pooled, m.weights = append(m.pooled, list[i]), append(m.weights, weight)
		}
	}
	return nil
}

// requestWeight is the number of a client's requests while the i-th of its lengths are valid.
func (m *serveGenModel) requestWeight(client int, list []serveGenLengths, i int) (sum float64) {
	until := int32(m.windows)
	if i+1 < len(list) {
		until = list[i+1].window
	}
	for _, r := range m.rates[client] {
		if r.window >= list[i].window && r.window < until {
			sum += float64(r.rate)
		}
	}
	return sum
}

// drawPooledLengths draws the lengths of a client, in proportion to the clients' requests.
func (m *serveGenModel) drawPooledLengths(rng *rand.Rand) *serveGenLengths {
	x := rng.Float64() * m.weights[len(m.weights)-1]
	i, _ := slices.BinarySearch(m.weights, x)
	return &m.pooled[min(i, len(m.pooled)-1)]
}

// meanRate is the mean of all requests per second over the whole trace.
func (m *serveGenModel) meanRate() float64 {
	var sum float64
	for _, list := range m.rates {
		for _, r := range list {
			sum += float64(r.rate)
		}
	}
	return sum / float64(m.windows)
}
