package apidoc_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"apipay.io/hub/pkg/apikey"
	"apipay.io/hub/proto/events"
	"apipay.io/hub/services/payment-api/internal/apidoc"
)

func TestDocument(t *testing.T) {
	t.Parallel()
	document, err := apidoc.Document()
	require.NoError(t, err)
	require.NoError(t, document.Validate(context.Background()))

	var types []string
	for _, value := range document.Components.Schemas["EventType"].Value.Enum {
		types = append(types, value.(string))
	}
	require.ElementsMatch(t, events.Types(events.TopicOutboundWebhooks), types)

	// Each operation tells which scope it needs, and the parts of its POSTs agree with the rule about keys.
	money := []string{"createPaymentIntent", "confirmPaymentIntent", "cancelPaymentIntent", "createRefund"}
	for path, item := range document.Paths.Map() {
		for method, operation := range item.Operations() {
			scope, _ := operation.Extensions["x-required-scope"].(string)
			require.Contains(t, apikey.Scopes(), scope, "%s %s", method, path)
			require.True(t, strings.HasSuffix(operation.Description, "Needs the scope `"+scope+"`."), "%s %s", method, path)
			key := operation.Parameters.GetByInAndName("header", "Idempotency-Key")
			require.Equal(t, method == "POST", key != nil, "%s %s", method, path)
			if key != nil {
				require.Equal(t, slices.Contains(money, operation.OperationID), key.Required, operation.OperationID)
			}
			for _, status := range []string{"400", "401", "403", "429", "500", "503"} {
				require.NotNil(t, operation.Responses.Value(status), "%s %s %s", method, path, status)
			}
			for status, response := range operation.Responses.Map() {
				for _, header := range []string{"X-Request-Id", "RateLimit", "RateLimit-Policy"} {
					require.Contains(t, response.Value.Headers, header, "%s %s %s", method, path, status)
				}
			}
		}
	}
}
