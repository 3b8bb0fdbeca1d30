package archtest

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ratchet bounds one figure of the source. Where the source exceeds the limit today, a line of the baseline
// testdata/<name>.txt allows the present figure. A baseline line may only shrink.
type ratchet struct {
	name    string // of the baseline file, without .txt
	limit   int    // the figure that needs no line
	rule    string // what the figure is and why it is bounded
	measure func([]sourceFile) figures
}

const updateCommand = "go test ./internal/archtest -update"

// compareBaseline lists every key above its allowed figure, and every baseline line that is more than a tenth above
// the measured figure. The tenth keeps small improvements from touching the baseline each time.
func (r ratchet) compareBaseline(now figures, baseline map[string]int) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		f := now[key]
		if allowed := max(r.limit, baseline[key]); f.count > allowed {
			out = append(out, fmt.Sprintf("%s: %d, allowed %d: %s (%s)", key, f.count, allowed, r.rule, f.listPlaces()))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(baseline)) {
		old := baseline[key]
		if n := now.countOf(key); n < old-old/10 {
			out = append(out, fmt.Sprintf("%s: %d, but testdata/%s.txt still allows %d: lower it with %s", key, n, r.name, old, updateCommand))
		}
	}
	return out
}

// lowerBaseline returns the baseline of the measured figures. No line rises. Keys without a line get one only out of
// what vanished keys leave, which is how a renamed package keeps its figure.
func (r ratchet) lowerBaseline(now figures, baseline map[string]int) (map[string]int, error) {
	lowered := map[string]int{}
	free := 0
	for key, old := range baseline {
		if now.countOf(key) <= r.limit {
			free += old
		}
	}
	var raised []string
	for _, key := range slices.Sorted(maps.Keys(now)) {
		n := now.countOf(key)
		if n <= r.limit {
			continue
		}
		old, has := baseline[key]
		switch {
		case has && n > old:
			raised = append(raised, fmt.Sprintf("%s from %d to %d", key, old, n))
		case !has && n > free:
			raised = append(raised, fmt.Sprintf("%s from %d to %d", key, r.limit, n))
		case !has:
			free -= n
		}
		lowered[key] = n
	}
	if len(raised) > 0 {
		return nil, fmt.Errorf("testdata/%s.txt may only shrink, and would rise: %s. Improve the source instead. After moving code between packages, edit the lines so that their sum stays", r.name, strings.Join(raised, ", "))
	}
	return lowered, nil
}

// readBaseline reads lines of a key and a figure. Where a key is repeated the smallest figure counts: .gitattributes
// merges baselines by union, so both lines of two branches that lowered neighbouring figures remain until the next
// update. A missing file allows nothing and reports false.
func readBaseline(path string) (map[string]int, bool, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return map[string]int{}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	baseline, err := parseBaseline(string(text))
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return baseline, true, err
}

func parseBaseline(text string) (map[string]int, error) {
	baseline := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("%q is not a key and a figure", line)
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("%q is not a key and a figure", line)
		}
		if old, has := baseline[fields[0]]; !has || n < old {
			baseline[fields[0]] = n
		}
	}
	return baseline, lines.Err()
}

func (r ratchet) formatBaseline(baseline map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Present figures above the limit of %d: %s.\n# Lower them with %s. They never rise.\n", r.limit, r.rule, updateCommand)
	for _, key := range slices.Sorted(maps.Keys(baseline)) {
		fmt.Fprintf(&b, "%s %d\n", key, baseline[key])
	}
	return b.String()
}
