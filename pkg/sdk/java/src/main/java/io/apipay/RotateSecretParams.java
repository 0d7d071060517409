package io.apipay;

/** Parameters of rotating a secret. */
public final class RotateSecretParams extends Params {
    /** No parameters yet. */
    public RotateSecretParams() {}

    /**
     * Sets how long the old secret signs beside the new one; if not set a day, 0 revokes it now.
     *
     * @param value the value
     * @return this
     */
    public RotateSecretParams overlapSeconds(long value) {
        set("overlap_seconds", value);
        return this;
    }
}
