package engine

import (
	"bytes"
	"math"
	"strconv"
)

// What a gauge of sequences or a counter of tokens may say at most.
const (
	maxSeqs   = 1 << 20
	maxTokens = 1 << 53
)

// tally sums one metric over its series: with data parallelism there is one for each engine, and all of them count.
type tally struct {
	sum float64
	n   int
}

func (t *tally) add(v, limit float64) {
	if v >= 0 && v <= limit { // false for NaN
		t.sum += v
		t.n++
	}
}

func (t *tally) into(dst *float64) {
	if t.n > 0 {
		*dst = min(t.sum, maxTokens)
	}
}

func (t *tally) whole(dst *int64) {
	if t.n > 0 {
		*dst = int64(math.Round(min(t.sum, maxTokens)))
	}
}

// page gathers what one metrics page says.
type page struct {
	running, waiting, usage, oldUsage, kv                  tally
	prompt, output, queries, hits, preemptions, sleepState tally
}

// ParseVLLM reads vLLM's metrics in the Prometheus text format. It is lenient: lines that it does not know or cannot
// read are passed over, and what no line says keeps its value from last.
func ParseVLLM(text []byte, last Reading) Reading {
	var p page
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		if name, ok := bytes.CutPrefix(line, []byte("vllm:")); ok {
			p.line(name)
		}
	}
	r := last
	p.running.whole(&r.Running)
	p.waiting.whole(&r.Waiting)
	if p.usage.n == 0 {
		p.usage = p.oldUsage
	}
	if p.usage.n > 0 {
		r.KVUsage = min(p.usage.sum/float64(p.usage.n), 1)
	}
	p.kv.whole(&r.KVTotal)
	p.prompt.into(&r.PromptTokens)
	p.output.into(&r.OutputTokens)
	p.queries.into(&r.PrefixQueries)
	p.hits.into(&r.PrefixHits)
	p.preemptions.into(&r.Preemptions)
	if p.sleepState.n > 0 {
		r.Asleep = p.sleepState.sum > 0
	}
	return r
}

// line reads one series, its name without "vllm:".
func (p *page) line(l []byte) {
	name, labels, value, ok := series(l)
	if !ok {
		return
	}
	switch string(name) {
	case "num_requests_running":
		p.running.add(value, maxSeqs)
	case "num_requests_waiting":
		p.waiting.add(value, maxSeqs)
	case "kv_cache_usage_perc":
		p.usage.add(value, 1.01)
	case "gpu_cache_usage_perc":
		p.oldUsage.add(value, 1.01)
	case "cache_config_info":
		p.geometry(labels)
	case "prompt_tokens_total":
		p.prompt.add(value, maxTokens)
	case "generation_tokens_total":
		p.output.add(value, maxTokens)
	case "prefix_cache_queries_total":
		p.queries.add(value, maxTokens)
	case "prefix_cache_hits_total":
		p.hits.add(value, maxTokens)
	case "num_preemptions_total":
		p.preemptions.add(value, maxTokens)
	case "engine_sleep_state":
		// One series for each state; only "awake" at zero, or another state at one, means sleep.
		if bytes.Contains(labels, []byte(`sleep_state="awake"`)) {
			return
		}
		p.sleepState.add(value, 1)
	}
}

// geometry reads the KV cache's size, which vLLM tells in labels.
func (p *page) geometry(labels []byte) {
	blocks, ok1 := number(labels, "num_gpu_blocks")
	size, ok2 := number(labels, "block_size")
	if ok1 && ok2 && blocks >= 1 && size >= 1 {
		p.kv.add(blocks*size, maxTokens)
	}
}

func number(labels []byte, name string) (float64, bool) {
	for from := 0; ; {
		i := bytes.Index(labels[from:], []byte(name+`="`))
		if i < 0 {
			return 0, false
		}
		at := from + i
		from = at + len(name) + 2
		if at > 0 && labels[at-1] != ',' && labels[at-1] != ' ' {
			continue
		}
		end := bytes.IndexByte(labels[from:], '"')
		if end < 0 {
			return 0, false
		}
		v, err := strconv.ParseFloat(string(labels[from:from+end]), 64)
		return v, err == nil
	}
}

// series splits `name{labels} value [timestamp]`. A quote inside a label may hide a closing bracket.
func series(l []byte) (name, labels []byte, value float64, ok bool) {
	i := bytes.IndexAny(l, "{ \t")
	if i <= 0 {
		return nil, nil, 0, false
	}
	name, rest := l[:i], l[i:]
	if rest[0] == '{' {
		end := closing(rest)
		if end < 0 {
			return nil, nil, 0, false
		}
		labels, rest = rest[1:end], rest[end+1:]
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 {
		return nil, nil, 0, false
	}
	v, err := strconv.ParseFloat(string(fields[0]), 64)
	return name, labels, v, err == nil
}

func closing(l []byte) int {
	quoted := false
	for i := 1; i < len(l); i++ {
		switch c := l[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}
