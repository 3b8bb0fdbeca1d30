package gpu

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// Sizes of the simulated vectors.
const (
	defaultDimensions = 1024
	maxDimensions     = 4096
	maxInputs         = 2048
)

// embedBody is the body of an embeddings request.
type embedBody struct {
	Model          string          `json:"model"`
	Input          json.RawMessage `json:"input"`
	EncodingFormat string          `json:"encoding_format"`
	Dimensions     *int            `json:"dimensions"`
	Truncate       *int            `json:"truncate_prompt_tokens"`
}

// embedJob is a request for embeddings as used by the engine and the writer.
type embedJob struct {
	inputs     []parsedPrompt
	tokens     int
	dimensions int
	base64     bool
}

// serveEmbeddings answers POST /v1/embeddings. An input costs its prefill only: its vector is ready when the engine
// would emit the first token.
func (s *Server) serveEmbeddings(w http.ResponseWriter, r *http.Request) {
	if s.refuseByChaos(w, s.chaosRand.drawFloat()) || s.refuseIfAsleep(w) {
		return
	}
	raw, ok := s.readBody(w, r)
	if !ok {
		return
	}
	j, err := decodeEmbed(raw, s.cfg.ServedModel)
	switch {
	case errors.Is(err, errModel):
		writeError(w, http.StatusNotFound, fmt.Sprintf("The model does not exist; %s is served.", s.cfg.ServedModel))
		return
	case err != nil:
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.runInputs(r.Context(), w, j) {
		s.writeVectors(w, j)
	}
}

func decodeEmbed(raw []byte, served string) (*embedJob, error) {
	var b embedBody
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("the body is not a request: %w", err)
	}
	if b.Model != "" && b.Model != served {
		return nil, errModel
	}
	j := &embedJob{dimensions: defaultDimensions, base64: b.EncodingFormat == "base64"}
	switch {
	case b.EncodingFormat != "" && b.EncodingFormat != "float" && !j.base64:
		return nil, errors.New("encoding_format: use float or base64")
	case b.Truncate != nil:
		return nil, errors.New("truncate_prompt_tokens: not supported, leave it out")
	case b.Dimensions != nil:
		if j.dimensions = *b.Dimensions; j.dimensions < 1 || j.dimensions > maxDimensions {
			return nil, fmt.Errorf("dimensions: use 1 to %d", maxDimensions)
		}
	}
	return j, j.readInputs(b.Input)
}

// readInputs reads a text, a list of texts, a list of token ids, or a list of such lists.
func (j *embedJob) readInputs(raw json.RawMessage) error {
	var list []json.RawMessage
	var ids []int32
	if json.Unmarshal(raw, &list) != nil || json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		list = []json.RawMessage{raw}
	}
	if len(list) == 0 || len(list) > maxInputs {
		return fmt.Errorf("input: use 1 to %d inputs", maxInputs)
	}
	for i, one := range list {
		p, err := readPrompt(one)
		if err != nil {
			return fmt.Errorf("input %d: %w", i, err)
		}
		j.inputs = append(j.inputs, p)
		j.tokens += p.tokens
	}
	return nil
}

// runInputs runs every input through the engine; false when it has answered with an error, or the client has left.
func (s *Server) runInputs(ctx context.Context, w http.ResponseWriter, j *embedJob) bool {
	answers := make([]*pendingAnswer, 0, len(j.inputs))
	defer func() {
		for _, a := range answers {
			if s.driver.cancelAnswer(a) {
				s.metrics.countFinished(finishAbort)
			} else {
				s.metrics.countFinished(finishStop)
			}
		}
	}()
	for _, in := range j.inputs {
		a, err := s.driver.submitRequest(EngineRequest{PrefixHashes: in.blockHashes, PromptTokens: in.tokens, OutputTokens: 1})
		switch {
		case errors.Is(err, ErrFull):
			writeError(w, http.StatusServiceUnavailable, err.Error())
			return false
		case errors.Is(err, errOOM):
			writeError(w, http.StatusInternalServerError, err.Error())
			return false
		case err != nil:
			writeError(w, http.StatusBadRequest, err.Error())
			return false
		}
		answers = append(answers, a)
	}
	for _, a := range answers {
		if _, _, err := a.waitTokens(ctx, 0); err != nil {
			if errors.Is(err, errOOM) {
				writeError(w, http.StatusInternalServerError, err.Error())
			}
			return false
		}
	}
	return true
}

// writeVectors answers in vLLM's format. A vector is derived from its input's hash: the same input has the same one
// on every worker.
func (s *Server) writeVectors(w http.ResponseWriter, j *embedJob) {
	n := s.lastID.Add(1)
	b := fmt.Appendf(nil, `{"id":"embd-%016x","object":"list","created":%d,"model":%q,"data":[`, splitMix64(s.cfg.Seed^n), time.Now().Unix(), s.cfg.ServedModel)
	for i, in := range j.inputs {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"index":%d,"object":"embedding","embedding":`, i)
		b = append(j.appendVector(b, in.hash), '}')
	}
	b = fmt.Appendf(b, `],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":0,"prompt_tokens_details":null}}`, j.tokens, j.tokens)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Write(b)
}

func (j *embedJob) appendVector(b []byte, key uint64) []byte {
	number := func(i int) float32 {
		unit := float64(splitMix64(key^splitMix64(uint64(i)))>>11) / (1 << 53)
		return float32((2*unit - 1) * math.Sqrt(3/float64(j.dimensions))) // of length one, on average
	}
	if j.base64 {
		raw := make([]byte, 0, 4*j.dimensions)
		for i := range j.dimensions {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(number(i)))
		}
		b = append(b, '"')
		b = base64.StdEncoding.AppendEncode(b, raw)
		return append(b, '"')
	}
	b = append(b, '[')
	for i := range j.dimensions {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(number(i)), 'g', -1, 32)
	}
	return append(b, ']')
}
