/** Pictures that are pasted into a message. */

export interface Picture {
  key: string;
  mimeType: string;
  /** In base64. */
  data: string;
}

/** A request holds 1 MiB, and base64 takes a third more than the bytes. */
export const MOST_PICTURES = 3;
const MOST_BYTES = 220_000;
const LONGEST_SIDE = 1568;
const SENT_AS_THEY_ARE = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/** Return the pictures of what is pasted; none if there is text, as from a word processor. */
export function pastedPictures(data: DataTransfer): File[] {
  if (data.types.includes("text/plain")) return [];
  return [...data.files].filter((file) => file.type.startsWith("image/"));
}

/** Return a picture in a size that can be sent. Rejects what the browser cannot read. */
export async function readPicture(file: Blob): Promise<Picture> {
  const small = file.size <= MOST_BYTES && SENT_AS_THEY_ARE.includes(file.type) ? file : await shrink(file);
  const key = crypto.getRandomValues(new Uint32Array(2)).join("-");
  return { key, mimeType: small.type, data: await base64(small) };
}

async function shrink(file: Blob): Promise<Blob> {
  const bitmap = await createImageBitmap(file);
  const { width, height } = bitmap;
  try {
    for (let scale = Math.min(1, LONGEST_SIDE / Math.max(width, height)); ; scale *= 0.7) {
      const canvas = new OffscreenCanvas(Math.ceil(width * scale), Math.ceil(height * scale));
      const context = canvas.getContext("2d") as OffscreenCanvasRenderingContext2D;
      context.fillStyle = "white"; // JPEG has no transparency
      context.fillRect(0, 0, canvas.width, canvas.height);
      context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
      const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 0.85 });
      if (blob.size <= MOST_BYTES) return blob;
    }
  } finally {
    bitmap.close();
  }
}

function base64(blob: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve((reader.result as string).split(",", 2)[1] ?? "");
    reader.onerror = () => reject(new Error("the picture cannot be read", { cause: reader.error }));
    reader.readAsDataURL(blob);
  });
}

/**
 * Return the body of a message with pictures. An agent that takes only text is sent `fallback`
 * besides the text, and the chat shows that, so that nobody believes the pictures were seen.
 */
export function withPictures(text: string, pictures: readonly Picture[], fallback: string) {
  const images = pictures.map(({ mimeType, data }) => ({ type: "image" as const, mimeType, data }));
  const parts = [...(text.trim() ? [{ type: "text" as const, text }] : []), ...images];
  return { input: { parts, textFallback: [text, fallback].filter((part) => part.trim()).join("\n\n") } };
}
