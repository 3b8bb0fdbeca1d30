package load

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// TracesVariable is the environment variable with the folder of public traces.
const TracesVariable = "SPILLWAY_TRACES"

// The public traces of single files, by their path in the folder.
const (
	azureTrace        = "azure2023/AzureLLMInferenceTrace_conv.csv.gz"
	conversationTrace = "mooncake/conversation_0-2640s.jsonl.gz"
	syntheticTrace    = "mooncake/synthetic.jsonl.gz"
	agentTrace        = "agentic/agent-sessions_train.jsonl.gz"
)

// PublicTrace is one file of a public trace. The files are not part of the repository: each has the licence of its
// source.
type PublicTrace struct {
	Name    string `json:"name"` // path in the folder of traces, with slashes
	Title   string `json:"title"`
	Size    int64  `json:"size_bytes"`
	Licence string `json:"licence"` // SPDX identifier
	Source  string `json:"source"`  // page of the original
	Changes string `json:"changes"` // made in the original, apart from compression; "none" if there are none
	SHA256  string `json:"sha256"`  // of the file as it is, compressed, in hexadecimal digits
}

// Where the originals are, at the commits from which the files were made.
const (
	mooncakeOrigin = "https://github.com/kvcache-ai/Mooncake/tree/3b5a594/FAST25-release/traces"
	azureOrigin    = "https://github.com/Azure/AzurePublicDataset/blob/b469a11/data/AzureLLMInferenceTrace_conv.csv"
	agentOrigin    = "https://github.com/callanjfox/kv-cache-tester/tree/94f6046/traces"
	serveGenOrigin = "https://github.com/alibaba/ServeGen/tree/f891d11/data"
)

const (
	weekChanges = "first 7 of 14 days; merged into one file per model; lengths reduced to their mean and 11 quantiles"
	dayChanges  = "merged into one file per model; lengths reduced to their mean and 11 quantiles"
)

// PublicTraces returns every file that a workload can read, by name.
func PublicTraces() []PublicTrace {
	list := []PublicTrace{
		{
			agentTrace, "sessions of a coding agent: prompts, answers, pauses (w4)", 727228, "Apache-2.0", agentOrigin,
			"535 of 739 sessions, one a line; block ids run-length coded; types dropped; model names replaced", "233d7a675bd91c21813a2234fd39a9f62521849033580281f006168965f0da2f",
		},
		{
			azureTrace, "an hour of conversations in Azure, 2023: arrivals and lengths (w1)", 180436, "CC-BY-4.0", azureOrigin,
			"none", "ed9069325b3dafe2f4f1c51f17f8aa238ec5eeb51f8b8541e7e2ef904dd465a8",
		},
		{
			conversationTrace, "conversations of a chat service, with prefix blocks (w2)", 575586, "Apache-2.0", mooncakeOrigin,
			"only the first 2,640 s: 8,722 of 12,031 requests", "5a07aaa8ffa095867d8c03f3e7a0c4019bb8bea8cbcbb6ef575961249eb197bc",
		},
		{
			syntheticTrace, "prompts of public data sets with Poisson arrivals, with prefix blocks (w3)", 293158, "Apache-2.0", mooncakeOrigin,
			"none", "7b75a2ef6fe9ba9c87ffc7d894ed16158e8ce30bb88de55b5b75af6812fc494f",
		},
	}
	for _, m := range []struct {
		model, title, changes string
		lensSize, ratesSize   int64
		lensSum, ratesSum     string
	}{
		{
			"m-large", "a week of a large language model", weekChanges, 81969, 710777,
			"33c4b3cdfe4356842cac754a1e86edc3e1b217036669e2b0327e3eeb7645791e", "90d9733469587dc7cd9733952a6be9bf33e23b2754e5169352d2de90909a51cd",
		},
		{
			"m-mid", "a week of a medium language model", weekChanges, 43565, 761705,
			"1ba87b247b3f243a7ef58d033ce0e5008fe3d8a985123d3e7b80a68491ee04ea", "6d53964c826a60d73b7becf904b64460a75cdb261d888b16466862910e2f7d04",
		},
		{
			"m-small", "a week of a small language model", weekChanges, 17803, 280465,
			"c42844c69df3f5b720a1cfa286336887b027a35fd731d0d863050be87f6c90c1", "bd103e85f068223624ddafac17d37f90fe2b2a912d1916767253e615a68b9ce9",
		},
		{
			"mm-image", "a day of a model with images", dayChanges, 8541, 30647,
			"41223156d7eb19486b1050c0ea4b49abb4289ea6b92cf71c51b5555a6ee75027", "d8c04128fe773eb23b456fa063a1c6debd440f72198788941f48c6382185e980",
		},
		{
			"deepseek-r1", "a day of a reasoning model", dayChanges, 10029, 44603,
			"5d32c279c2d1ea892e2198e2b6366e45f502aaeb3414b5b0bb154cc3deb9969c", "4dd73814e2e05008d8e2fd6bfcbe3d1b0e8b6ce1d13b3651677e3ec757d479dd",
		},
	} {
		rates, lengths, err := serveGenFiles(m.model)
		if err != nil {
			panic(err) // the models of this list are those of serveGenFiles; TestPublicTracesCoverWorkloads checks it
		}
		list = append(list,
			PublicTrace{lengths, m.title + ": lengths by client (w5)", m.lensSize, "Apache-2.0", serveGenOrigin, m.changes, m.lensSum},
			PublicTrace{rates, m.title + ": arrival rates by client (w5)", m.ratesSize, "Apache-2.0", serveGenOrigin, m.changes, m.ratesSum})
	}
	return list
}

// TraceState is the result of comparing a file with its published checksum.
type TraceState string

const (
	TraceIntact  TraceState = "intact"
	TraceMissing TraceState = "missing"
	TraceDiffers TraceState = "differs" // the file has another checksum
)

// CheckIn compares the file in a folder of traces with its checksum.
func (p *PublicTrace) CheckIn(dir string) (TraceState, error) {
	f, err := os.Open(filepath.Join(dir, filepath.FromSlash(p.Name)))
	if errors.Is(err, fs.ErrNotExist) {
		return TraceMissing, nil
	}
	if err != nil {
		return "", fmt.Errorf("checking a public trace: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", fmt.Errorf("checking a public trace: %w", err)
	}
	if hex.EncodeToString(sum.Sum(nil)) != p.SHA256 {
		return TraceDiffers, nil
	}
	return TraceIntact, nil
}
