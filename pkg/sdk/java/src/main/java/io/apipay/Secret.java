package io.apipay;

import java.util.function.Supplier;

/** A webhook endpoint's signing secret. It prints as {@code [redacted]}; {@link #reveal} gives the text. */
public final class Secret {
    // A lambda, so that printers by reflection find no text in a field of this class.
    private final Supplier<String> text;

    /**
     * Wraps a secret's text.
     *
     * @param text the text, {@code whsec_...}
     */
    public Secret(String text) {
        this.text = () -> text;
    }

    /**
     * Gives the text.
     *
     * @return the text
     */
    public String reveal() {
        return text.get();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Secret secret && secret.reveal().equals(reveal());
    }

    @Override
    public int hashCode() {
        return Secret.class.hashCode(); // nothing that depends on the text
    }

    @Override
    public String toString() {
        return "[redacted]";
    }
}
