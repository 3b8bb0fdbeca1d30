package batch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/batch"
)

// BenchmarkMergedRequest is the cost of one request of a full call in this package, from its body to its answer: reading,
// gathering, merging and splitting 64 requests of about 200 bytes, with vectors of 768 numbers.
func BenchmarkMergedRequest(b *testing.B) {
	const n = 64
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, `{"model":"bge-large","input":"%03d %s","encoding_format":"float"}`, i, strings.Repeat("word ", 32))
	}
	vector := "[" + strings.TrimSuffix(strings.Repeat("-0.0123456,", 768), ",") + "]"
	data := make([]string, n)
	for i := range data {
		data[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":%s}`, i, vector)
	}
	upstream := []byte(`{"object":"list","data":[` + strings.Join(data, ",") + `],"model":"m","usage":{"prompt_tokens":6400,"total_tokens":6400}}`)
	now := time.Unix(0, 0)
	b.ReportAllocs()
	for b.Loop() {
		l := batch.NewBatcher[int](batch.Config{})
		for _, body := range bodies {
			p, _ := batch.ReadEmbeddings(body)
			l.AddItem(&batch.Item[int]{Part: p}, now)
		}
		c := l.NextCall(now)
		parts := c.Parts()
		batch.MergeParts(parts)
		if _, ok := batch.SplitAnswer(parts, upstream); !ok || c.Size != n {
			b.Fatal("not split")
		}
		l.FinishCall(c, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/request")
}
