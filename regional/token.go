package regional

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/bearer"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

// token is the tenant whom a JWT stands for, with the class that it allows. nil without an error: there is no JWT.
func (g *Gateway) token(st *state, r *http.Request, now time.Time) (*spec.Tenant, *openai.Error) {
	text := apiKey(r.Header)
	if len(st.spec.Issuers) == 0 || strings.Count(text, ".") != 2 {
		return nil, nil
	}
	caller, err := g.tokens.Verify(text, now)
	if err != nil {
		return nil, badToken(err)
	}
	t := st.spec.Tenant(caller.Tenant)
	if t == nil {
		return nil, badToken(bearer.ErrTenant)
	}
	if caller.Class > t.Class {
		lower := *t
		lower.Class = caller.Class
		return &lower, nil
	}
	return t, nil
}

// badToken tells the caller what is wrong with its token: all of it stands in the token for anybody to read.
func badToken(err error) *openai.Error {
	return &openai.Error{
		Status: http.StatusUnauthorized, Type: openai.TypeAuthentication, Code: openai.CodeInvalidToken, NoRetry: !errors.Is(err, bearer.ErrKey),
		Message: err.Error(),
	}
}
