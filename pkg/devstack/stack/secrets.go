package stack

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
)

var databaseRoles = []string{"owner", "app", "worker", "admin"}

var staffRoles = []string{"viewer", "support", "admin"}

// secrets are made once per stack folder and kept, readable by their owner only, so that a restart finds its data and the
// keys that its user noted.
type secrets struct {
	SuperuserPassword string            `json:"superuser_password"`
	RolePasswords     map[string]string `json:"role_passwords"` // by the last word of the role
	Tokens            map[string]string `json:"tokens"`         // admin-api, by staff role
	Demo              demoKeys          `json:"demo"`
}

// demoKeys are filled once admin-api runs.
type demoKeys struct {
	TenantID string `json:"tenant_id"`
	TestKey  string `json:"api_key_test"`
	LiveKey  string `json:"api_key_live"`
}

func loadSecrets(cfg Config) (*secrets, error) {
	s := &secrets{}
	body, err := os.ReadFile(secretsPath(cfg))
	switch {
	case err == nil:
		if err := json.Unmarshal(body, s); err != nil {
			return nil, fmt.Errorf("reading %s: %w", secretsPath(cfg), err)
		}
		return s, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	s.SuperuserPassword = rand.Text()
	s.RolePasswords, s.Tokens = map[string]string{}, map[string]string{}
	for _, role := range databaseRoles {
		s.RolePasswords[role] = rand.Text()
	}
	for _, role := range staffRoles {
		s.Tokens[role] = "adm_" + role + "_" + rand.Text()
	}
	return s, s.save(cfg)
}

func (s *secrets) save(cfg Config) error { return writeJSON(secretsPath(cfg), s) }

func secretsPath(cfg Config) string { return cfg.path("secrets.json") }

type staffToken struct {
	Name    string   `json:"name"`
	SHA256  string   `json:"sha256"`
	Role    string   `json:"role"`
	Tenants []string `json:"tenants,omitempty"`
}

// writeTokens writes the file that admin-api reads: the stack's own tokens, and those of the caller's file, if it names one.
func (s *secrets) writeTokens(cfg Config, callerFile string) (string, error) {
	var tokens []staffToken
	if callerFile != "" {
		body, err := os.ReadFile(callerFile)
		if err != nil {
			return "", fmt.Errorf("APIPAY_ADMIN_TOKENS_FILE: %w", err)
		}
		if err := json.Unmarshal(body, &tokens); err != nil {
			return "", fmt.Errorf("APIPAY_ADMIN_TOKENS_FILE %s: %w", callerFile, err)
		}
	}
	for _, role := range staffRoles {
		sum := sha256.Sum256([]byte(s.Tokens[role]))
		tokens = append(tokens, staffToken{Name: "local-" + role, SHA256: hex.EncodeToString(sum[:]), Role: role})
	}
	path := cfg.path("admin-tokens.json")
	return path, writeJSON(path, tokens)
}

// ensureKeyset makes the key set that encrypts webhook secrets, once: with another, the stored ones could not be read.
func ensureKeyset(cfg Config) (string, error) {
	path := cfg.path("keyset.json")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(cfg.Dir, ".keyset-")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	err = insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(file))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return "", err
	}
	return path, os.Rename(file.Name(), path)
}

// writeJSON replaces a file as a whole; only its owner can read it.
func writeJSON(path string, value any) error {
	body, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".write-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(append(body, '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
