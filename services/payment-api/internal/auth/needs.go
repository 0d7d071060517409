package auth

import "apipay.io/hub/pkg/postgres"

// Needs are the privileges that the package's statements take.
func Needs() []postgres.Need {
	return []postgres.Need{
		{Table: "api_keys", Verbs: []postgres.Verb{postgres.Select, postgres.Update}, Columns: []string{"last_used_at"}},
	}
}
