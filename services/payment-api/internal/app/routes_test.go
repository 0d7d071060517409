package app_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/services/payment-api/internal/apidoc"
)

// The document and the routes are the same list.
func TestRoutes_AreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	document, err := apidoc.Document()
	require.NoError(t, err)
	var promised []string
	for path, item := range document.Paths.Map() {
		for method := range item.Operations() {
			promised = append(promised, method+" "+path)
		}
	}
	var served []string
	param := regexp.MustCompile(`:(\w+)`)
	for _, route := range newAPI(t, setup(t)).Routes() {
		if strings.HasPrefix(route.Path, "/v1/") && route.Method != http.MethodHead {
			served = append(served, route.Method+" "+param.ReplaceAllString(route.Path, "{$1}"))
		}
	}
	require.ElementsMatch(t, promised, served)
}
